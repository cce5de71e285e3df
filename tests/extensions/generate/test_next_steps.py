"""Commands that pages offer for a record, as the extensions that have them understand them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.extensions import generate

DUMP = Path(__file__).parents[3] / "examples/check_a_dump/dump.json"


def test_the_command_of_a_page_writes_a_test_of_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((_, words),) = generate.NEXT_STEPS
    command = [word.replace("<dump>", os.fspath(DUMP)).replace("<call>", "Torch.rsqrt.1.forward") for word in words]
    assert main([*command[1:], "--no-run"]) == 0
    (module,) = (tmp_path / "generated_tests").glob("test_*.py")
    assert '"Torch.rsqrt.1": ' in module.read_text()
    assert '"Torch.rsqrt.2": ' not in module.read_text()
