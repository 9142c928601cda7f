"""The command line as a whole: help, versions, completion, exit codes, no traces."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command

from ccal.cli import options
from ccal.cli.app import app
from ccal.cli.console import note
from ccal.progress import counting
from tests.cli.conftest import ROOT, environment, invoke, spawn, start
from tests.training.test_progress import Terminal

COMMANDS = (
    *(
        "train",
        "fit-linear",
        "evaluate",
        "compare",
        "encode",
        "index",
        "search",
        "identify",
        "serve",
        "info",
    ),
    *("reproduce", "data", "demo"),
)


def test_alone_it_shows_its_commands() -> None:
    outcome = invoke()
    assert all(command in outcome.out for command in COMMANDS)


@pytest.mark.parametrize("command", [*COMMANDS, "data build", "data preview"])
def test_help_teaches(command: str) -> None:
    outcome = invoke(*command.split(), "--help")
    assert outcome.code == 0
    assert f"ccal {command}" in outcome.out.split("Example")[1]


def all_commands() -> dict[str, Any]:
    """Every command as Typer made it, by its words on the command line."""
    root: Any = get_command(app)
    found: dict[str, Any] = {"": root}
    for name in root.list_commands(None):
        found[name] = root.get_command(None, name)
        found |= {f"{name} {inner}": c for inner, c in getattr(found[name], "commands", {}).items()}
    return found


def test_flags_are_flags_and_every_option_is_explained() -> None:
    commands = all_commands()
    assert {*COMMANDS, "data build", "data preview"} < set(commands)
    for words, command in commands.items():
        shown = invoke(*words.split(), "--help").out
        assert not re.search("<bool>|boolean", shown, re.IGNORECASE), words
        unexplained = [p.name for p in command.params if not (p.help or "").strip()]
        assert not unexplained, (words, unexplained)


def test_the_help_of_train_begins_with_the_pairs() -> None:
    shown = invoke("train", "--help").out
    panels = re.findall(r"╭─ ([\w ]+) ─", shown)
    assert panels == ["Arguments", "The pairs", "The split", "Training", "Output"]
    assert re.search(r"--resume +Go on", shown)
    assert shown.index("--quiet") < shown.index("--help")


@pytest.mark.parametrize(
    "command", ["train", "fit-linear", "evaluate", "compare", "encode", "index", "info"]
)
def test_help_says_what_a_command_needs(command: str) -> None:
    assert "Needs" in invoke(command, "--help").out


def test_version() -> None:
    import ccal

    assert invoke("--version").out == f"ccal {ccal.__version__}\n"


def test_commands_do_not_import_each_other() -> None:
    shared = {"app", "console", "options", "pictures"}
    for path in (ROOT / "src/ccal/cli").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        found = {
            *re.findall(r"ccal\.cli\.(\w+)", text),
            *re.findall(r"ccal\.cli import (\w+)", text),
        }
        assert found <= shared, path


def test_help_needs_neither_torch_nor_numpy() -> None:
    # The package's own __init__ aside, which is not the command line's.
    code = (
        "import sys, types; package = types.ModuleType('ccal');"
        f"package.__path__ = [{str(ROOT / 'src/ccal')!r}]; sys.modules['ccal'] = package;"
        "from typer.testing import CliRunner; from ccal.cli.app import app;"
        "assert 'reproduce' in CliRunner().invoke(app, ['--help']).output;"
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0;"
        "print({'torch', 'numpy', 'matplotlib', 'fastapi'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert result.stdout.strip() == "set()"


def test_methods_and_presets_are_those_of_training() -> None:
    from ccal.training import METHODS, PRESETS, Settings

    assert get_args(options.MethodName) == METHODS
    assert get_args(options.PresetName) == tuple(PRESETS)
    assert options.TextName == get_type_hints(Settings)["text"]
    assert set(options.FLAGS.values()) <= set(Settings.__dataclass_fields__)


def test_data_options_are_the_fields_of_a_source() -> None:
    from ccal.data import Source

    assert {*options.DATA, "folder"} == set(Source.__dataclass_fields__)


def test_defaults_in_the_help_are_those_of_the_settings() -> None:
    from ccal.data import Source
    from ccal.training import Settings

    settings, source = Settings(), Source(x="a.npy", y="b.npy")
    help_of = {**options.PAIRS, **options.SPLIT, **options.TRAINING}
    for name, value in [
        ("epochs", settings.max_epochs),
        ("batch_size", settings.batch_size),
        ("precision", settings.precision),
        ("valid", source.valid),
        ("test", source.test),
        ("split_seed", source.split_seed),
        ("captions", source.captions),
    ]:
        assert get_args(help_of[name])[1].show_default == str(value)
    assert float(get_args(help_of["learning_rate"])[1].show_default) == settings.learning_rate


def test_completion_script_for_bash(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ccal"]
    env = {**environment(), "_CCAL_COMPLETE": "complete_bash", "COMP_WORDS": "ccal ev"}
    env["COMP_CWORD"] = "1"
    result = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert "evaluate" in result.stdout.split()


def test_errors_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    outcome = spawn("train", "--x", "a.npy", "--y", "b.npy", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"error: {tmp_path / 'a.npy'}: no such file.\n"
    assert not (tmp_path / "runs").exists()


def test_debug_shows_the_trace(tmp_path: Path) -> None:
    outcome = spawn("--debug", "identify", "nothing.wav", cwd=tmp_path)
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert "InputError" in outcome.err


def test_unknown_option_and_command_exit_2() -> None:
    assert invoke("train", "--epoch", "3").code == 2
    outcome = invoke("evalute")
    assert outcome.code == 2
    assert "evaluate" in outcome.err


@pytest.mark.parametrize("arguments", [["info", "RUN", "--json"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str], trained: Path) -> None:
    words = [str(trained / "run") if word == "RUN" else word for word in arguments]
    process = start(*words, cwd=trained)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything was written
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) in (1, 141)


def test_what_the_system_refuses_is_one_line(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inside = tmp_path / "file" / "out"
    outcome = invoke("evaluate", trained / "run", "--bootstrap", 0, "--trec", tmp_path / "file")
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path / 'file'}: File exists\n")
    arrays = ["--x", trained / "image.npy", "--y", trained / "text.npy", "--methods", "linear"]
    outcome = invoke("compare", *arrays, "--seeds", 0, "-o", inside, "-q")
    assert outcome.code == 2
    assert f"error: {inside / 'linear-0'}: Not a directory\n" in outcome.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_below_stdout_is_one_line(trained: Path) -> None:
    command = [sys.executable, "-m", "ccal", "info", str(trained / "run")]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert (result.returncode, result.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    command = f"'{sys.executable}' -m ccal info --help {closed}"
    result = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=environment(), check=True
    )
    assert result.stderr == ""


def test_a_note_erases_the_progress_line_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    show = counting("items", stream, clock=iter(range(0, 100, 5)).__next__)
    show(1, 10)
    note("warning: one item is blank")
    assert stream.getvalue().endswith("left\r\x1b[Kwarning: one item is blank\n")
