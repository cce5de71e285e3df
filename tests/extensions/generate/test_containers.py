"""Generated tests whose tensors were recorded in containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_msprobe.recorded  # noqa: F401 - loaded once: inner runs drop what they load
from pytest_msprobe.commands.main import main
from tests.support.dumps.containers import CONTAINERS, KINDS, dump_of, every_kind
from tests.support.runs import check


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of a recorded run of each kind."""
    return every_kind(tmp_path_factory.mktemp("runs"))


def test_generated_tests_have_a_file_of_each_tensor_and_pass(pytester: pytest.Pytester, runs: dict[str, Path]) -> None:
    out = {kind: pytester.path / kind for kind in KINDS}
    for kind in KINDS:
        words = ["-k", "linear or where or complex", "--real-data", "--no-run"]
        assert main(["generate", str(dump_of(runs[kind])), "-o", str(out[kind]), *words]) == 0
    stored: dict[str, list[Any]] = {
        kind: [torch.load(file, weights_only=True).tolist() for file in (out[kind] / "tensors").glob("*.pt")]
        for kind in KINDS
    }
    # What calls share is one file here.
    for kind in CONTAINERS:
        assert 10 < len(stored[kind]) <= len(stored["pt"])
        assert all(stored[kind].count(numbers) >= 1 for numbers in stored["pt"])
        checked = check(pytester, out[kind], "--msprobe-device=cpu")
        assert checked.exit_code == 0
        assert len(checked.cases) > 5
