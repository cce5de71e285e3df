"""Saved cases looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.modes.check.saved_case import SavedCase
from tests.support.dumps.dump_files import SOFTMAX

RECORD = "Functional.softmax.0.forward"


def test_a_case_shows_its_tensors_and_where_the_device_was_wrong(
    save: Callable[..., SavedCase], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save(SOFTMAX, RECORD).folder
    assert main(["show", folder]) == 0
    reported = capsys.readouterr().out
    assert "args.0" in reported
    assert "target.output" in reported
    names = [word for word in reported.split() if word.startswith(("target.output", "golden.output"))]
    target, golden = (next(name for name in names if name.startswith(side)) for side in ("target", "golden"))
    assert main(["show", f"{folder}::{target.rstrip(':')}", f"{folder}::{golden.rstrip(':')}"]) == 1
    assert "error map:" in capsys.readouterr().out
