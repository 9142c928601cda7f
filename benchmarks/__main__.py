"""Run all benchmarks, print their tables, and save them as JSON.

    python -m benchmarks [--only NAME ...] [--output FILE]

Run on an otherwise idle machine: two busy threads make linear algebra many times slower. Freed
memory is kept, for all that is compared, as `ccal train` does; --default-allocator shows what comes
of it otherwise.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

from benchmarks import accuracy, evaluation, layer, linear_cca, ranking, sentences
from ccal.training.hardware import keep_freed_memory

BENCHMARKS = {
    "accuracy": accuracy.main,
    "layer": layer.main,
    "ranking": ranking.main,
    "linear_cca": linear_cca.main,
    "evaluation": evaluation.main,
    "sentences": sentences.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and accuracy, as ratios in one run.")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--default-allocator", action="store_true")
    arguments = parser.parse_args()
    kept = not arguments.default_allocator and keep_freed_memory()
    machine = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "freed memory kept": kept,
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    results: dict[str, object] = {"machine": machine}
    if arguments.output.exists():
        results = {**json.loads(arguments.output.read_text()), **results}
    for name in arguments.only:
        results.update(BENCHMARKS[name]())
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nsaved as {arguments.output}")


if __name__ == "__main__":
    main()
