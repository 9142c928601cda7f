from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ccal.cli.app import app
from ccal.experiments import digits

pytest.importorskip("sklearn", reason="the demo with digits needs scikit-learn")


def test_the_demo_with_digits_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [len(part) for part in digits.halves()] == [1097, 200, 500]
    monkeypatch.setattr(digits, "METHODS", {"linear CCA": digits.METHODS["linear CCA"]})
    result = CliRunner().invoke(app, ["demo", "--digits"])
    assert result.exit_code == 0, result.output
    rows = [line for line in result.output.splitlines() if line.startswith("linear CCA")]
    assert ["left -> right" in rows[0], "right -> left" in rows[1]] == [True, True]
