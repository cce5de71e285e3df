"""Real runs whose tensors are in files: equal ones, and files that are missing or damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

Compare = Callable[..., pytest.RunResult]


@pytest.fixture
def tensors(real_runs: Path, tmp_path: Path) -> Iterator[Path]:
    """Return a copy of two runs with their tensors."""
    source = real_runs / "lstm-26.2.0-L1-tensor"
    for name, run in (("target", "base"), ("golden", "base")):
        shutil.copytree(source / run, tmp_path / name)
    return tmp_path


def dumps_below(folder: Path) -> tuple[Path, Path]:
    return folder / "target" / "dump.json", folder / "golden" / "dump.json"


def test_equal_tensors_pass(compare: Compare, tensors: Path) -> None:
    compare(*dumps_below(tensors)).assert_outcomes(passed=159)


def test_a_missing_tensor_file_fails_its_call_and_names_the_file(compare: Compare, tensors: Path) -> None:
    missing = tensors / "golden" / "dump_tensor_data" / "Torch.tanh.0.forward.output.0.pt"
    missing.unlink()
    result = compare(*dumps_below(tensors), "-k", "tanh and forward")
    result.assert_outcomes(failed=1, deselected=158)
    result.stdout.fnmatch_lines([f"*missing: {missing}*"])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no tensor", b"\x80\x02."])
def test_a_damaged_tensor_file_fails_its_call_and_names_the_file(
    compare: Compare, tensors: Path, content: bytes
) -> None:
    damaged = tensors / "target" / "dump_tensor_data" / "Torch.tanh.0.forward.output.0.pt"
    damaged.write_bytes(content)
    result = compare(*dumps_below(tensors), "-k", "tanh and forward")
    result.assert_outcomes(failed=1, deselected=158)
    result.stdout.fnmatch_lines([f"*{damaged}: not a readable tensor file*"])


def test_a_tensor_of_another_shape_than_recorded_fails_its_call(compare: Compare, tensors: Path) -> None:
    path = tensors / "target" / "dump_tensor_data" / "Torch.tanh.0.forward.output.0.pt"
    torch.save(torch.zeros(3), path)
    result = compare(*dumps_below(tensors), "-k", "tanh and forward")
    result.assert_outcomes(failed=1, deselected=158)
    result.stdout.fnmatch_lines(["*belongs to another dump*"])


def test_of_distributed_tensors_the_parts_of_a_rank_are_compared(
    compare: Compare, tmp_path: Path, element: Any, forward: Any, write_dump: Callable[..., Path]
) -> None:
    name = "Torch.tanh.0.forward"
    file = f"{name}.output.0.pt"
    distributed = element(4, 3, data_name=file, type="torch.distributed.tensor.DTensor")
    body = forward(element(4, 3), output=[distributed])
    dumps = [write_dump({name: body}, tmp_path / side, task="tensor") for side in ("target", "golden")]
    for number, dump in enumerate(dumps):
        (dump.parent / "dump_tensor_data").mkdir()
        torch.save(torch.full((2, 3), 1.0 + number / 100), dump.parent / "dump_tensor_data" / file)
    compare(dumps[0], dumps[0]).assert_outcomes(passed=1)
    different = compare(*dumps)
    different.assert_outcomes(failed=1)
    different.stdout.fnmatch_lines(["*output.0*exceeds limit*"])


def test_a_missing_tensor_folder_is_one_error(compare: Compare, tensors: Path) -> None:
    shutil.rmtree(tensors / "golden" / "dump_tensor_data")
    result = compare(*dumps_below(tensors))
    result.stderr.fnmatch_lines(["*dump_tensor_data: no such folder; copy the recorded tensors next to dump.json"])
