"""The training of the network that finds note heads, from tunes that come with the extra `music`.

    python -m ccal.experiments.note_heads [--tunes 240] [--batches 1500]

Tunes that the model of the package has never seen are left out. It takes one core some minutes and
writes `src/ccal/models/note-heads.safetensors`.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from ccal.bundled import abc_hash, held_out
from ccal.errors import InputError
from ccal.music import Wear, collection, engrave, parse_abc
from ccal.music.embedding import ink
from ccal.music.engraving import Engraving
from ccal.music.heads import STEPS, STRIDE, HeadFinder
from ccal.music.wear import at_places

_COLUMNS, _BATCH = 128, 48
# Beside the centre, the columns that count as the head's.
_REACH = 1


def pages(count: int, seed: int = 0) -> list[Engraving]:
    """Printed pages of some tunes of both collections."""
    unseen = held_out("folk-tunes")
    tunes = [tune for name in ("ryan", "oneill") for tune in collection(name)]
    tunes = [tune for tune in tunes if abc_hash(tune.abc) not in unseen]
    order = np.random.default_rng(seed).permutation(len(tunes))
    found: list[Engraving] = []
    for number in order.tolist():
        if len(found) == count:
            break
        try:
            found.append(engrave(parse_abc(tunes[number].abc), look=number))
        except InputError:
            continue
    return found


def targets(page: Engraving) -> NDArray[np.float32]:
    """Where the heads of a page are, (20, columns)."""
    values = np.zeros((STEPS, page.pixels.shape[1]), dtype=np.float32)
    for column, row in page.heads:
        # Steps are two rows apart, and the middle line is half a row below the middle.
        step = round((row - 0.5) / 2)
        if 0 <= step < STEPS:
            values[step, max(0, int(column) - _REACH) : int(column) + _REACH + 1] = 1
    return values


def batch(
    lines: Tensor, heads: Tensor, starts: NDArray[np.int64], wear: Wear
) -> tuple[Tensor, Tensor]:
    """Worn pieces of lines (40, columns) from these columns on, and their targets."""
    wide = _COLUMNS + 2 * (int(np.ceil(_COLUMNS * wear.margin)) + 1)
    pieces, where = (
        torch.stack([values[:, start : start + wide] for start in starts.tolist()])[:, None]
        for values in (lines, heads)
    )
    x, y = wear.places(pieces, _COLUMNS, _COLUMNS / 2)
    rows = (torch.arange(STEPS) + 0.5).view(1, STEPS, 1).expand(len(x), STEPS, _COLUMNS)
    wanted = at_places(where, x[:, :STEPS], rows)[:, 0]
    wanted = functional.max_pool2d(wanted, (1, STRIDE))
    return wear.printed(at_places(pieces, x, y)), (wanted > 0.5).float()


def train(found: list[Engraving], batches: int, seed: int = 0) -> HeadFinder:
    """A network trained on worn pieces of these pages."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    around = 160
    lines = np.concatenate([ink(page.pixels) for page in found], axis=1)
    heads = np.concatenate([targets(page) for page in found], axis=1)
    sheet, where = (torch.from_numpy(np.pad(v, ((0, 0), (around, around)))) for v in (lines, heads))
    finder, wear = HeadFinder(), Wear()
    optimizer = torch.optim.AdamW(finder.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=batches)
    mean = 0.0
    for number in range(batches):
        starts = rng.integers(0, lines.shape[1], _BATCH)
        worn, wanted = batch(sheet, where, starts, wear)
        loss = functional.binary_cross_entropy_with_logits(
            finder(worn), wanted, pos_weight=torch.tensor(3.0)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        mean += loss.item()
        if (number + 1) % 100 == 0:
            print(f"{number + 1:,} of {batches:,} batches: loss {mean / 100:.4f}", flush=True)
            mean = 0.0
    return finder.eval()


def main() -> None:
    """Train and write the network."""
    parser = argparse.ArgumentParser(description="Train the network that finds note heads.")
    parser.add_argument("--tunes", type=int, default=240)
    parser.add_argument("--batches", type=int, default=1500)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parents[1] / "models" / "note-heads.safetensors",
    )
    arguments = parser.parse_args()
    finder = train(pages(arguments.tunes), arguments.batches)
    save_file(finder.state_dict(), arguments.output)


if __name__ == "__main__":
    main()
