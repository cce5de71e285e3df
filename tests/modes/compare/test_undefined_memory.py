"""Two runs of one program that found other rubbish in memory are equal, and a fault behind it is found."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from tests.support.dumps.grouped_products import grouped
from tests.support.runs import run_pytest

RUBBISH = (0x41, 0xC7)


def dirty(tensor: torch.Tensor, byte: int) -> torch.Tensor:
    ctypes.memset(tensor.data_ptr(), byte, tensor.numel() * tensor.element_size())
    return tensor


def program(byte: int, wrong: float = 0.0) -> None:
    x = torch.ones(50) * 2
    filled = dirty(torch.empty(4, 50), byte)
    for row in range(4):
        filled[row] = x * row
    parts = dirty(x.new_empty(200), byte).view(4, 50)
    parts[0].copy_(x)
    parts[1:].copy_(filled[1:])
    out = dirty(torch.empty_like(filled), byte)
    torch.add(filled, parts, out=out)
    both = dirty(torch.empty(2, 50), byte)
    one, other = both.chunk(2)
    one.fill_(3.0 + wrong)
    other.zero_()
    masked = dirty(torch.empty(3, 50), byte).t().transpose(0, 1)
    masked[1:].masked_fill_(torch.ones(2, 50).bool(), 3.0)
    masked.select(0, 0).uniform_()
    zeros = torch.zeros_like(dirty(torch.empty(50), byte))
    unread = dirty(torch.empty(2, 50), byte)
    for part in (unread[:1], unread[1:]):
        torch.addmm(part, torch.ones(1, 2), torch.ones(2, 50), beta=0.0)
    dirty(torch.empty(2, 50), byte).addmm_(torch.ones(2, 2), torch.ones(2, 50), beta=0)
    for each in (out, both, masked, zeros):
        each.sum()


def recorded(folder: Path, byte: int, *, wrong: float = 0.0, **settings: Any) -> Path:
    with torch.random.fork_rng(), record(folder, **settings):
        torch.manual_seed(0)
        program(byte, wrong)
    return folder


@pytest.mark.parametrize("level", ["L1", "aten"])
@pytest.mark.parametrize(
    "settings", [{}, {"task": "tensor"}, {"summary_mode": "md5"}], ids=["numbers", "tensors", "md5"]
)
def test_recordings_with_other_rubbish_are_equal(
    pytester: pytest.Pytester, tmp_path: Path, level: str, settings: dict[str, str]
) -> None:
    target, golden = (recorded(tmp_path / str(byte), byte, level=level, **settings) for byte in RUBBISH)
    result = run_pytest(pytester, f"--msprobe-compare={target}", f"--msprobe-golden={golden}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["no compared call differs*", "* values not compared (nothing was written to this memory yet): *"]
    )


def test_a_wrong_value_is_found_where_it_is_written_and_where_it_is_read(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    target = recorded(tmp_path / "target", RUBBISH[0], level="L1", wrong=1.0)
    golden = recorded(tmp_path / "golden", RUBBISH[1], level="L1")
    result = run_pytest(pytester, f"--msprobe-compare={target}", f"--msprobe-golden={golden}")
    result.stdout.fnmatch_lines(["first forward culprit: Tensor.fill_.0.forward *"])
    assert result.parseoutcomes()["failed"] == 2


@pytest.mark.parametrize(("rank", "outcome"), [(0, "fail"), (1, "pass")])
def test_what_another_rank_broadcasts_overwrites_the_buffer(
    runs: Any, call: Any, tensor: Any, rank: int, outcome: str
) -> None:
    def side(at: float) -> dict[str, Any]:
        return {"Distributed.broadcast.0.forward": call(tensor(4, at=at), {"type": "int", "value": 0}, out=tensor(4))}

    target, golden = (runs.write(f"{name}/rank{rank}", side(at)) for name, at in (("target", 5.0), ("golden", -3.0)))
    pair = DumpPair(0, read_dump(target), read_dump(golden), policy=load_policy("default"))
    assert pair.compare("Distributed.broadcast.0.forward").outcome == outcome


@pytest.mark.parametrize(("operation", "outcome"), [("irecv", "pass"), ("isend", "fail")])
def test_what_a_batch_receives_overwrites_the_buffer(
    runs: Any, call: Any, tensor: Any, operation: str, outcome: str
) -> None:
    record = "Distributed.batch_isend_irecv.0.forward"

    def side(at: float) -> dict[str, Any]:
        one = {"class_type": "torch.distributed.P2POp", "tensor": tensor(4, at=at), "op": operation, "peer": 0}
        return {record: call([one], out=tensor(4))}

    target, golden = (runs.write(f"{name}/rank1", side(at)) for name, at in (("target", 5.0), ("golden", -3.0)))
    pair = DumpPair(0, read_dump(target), read_dump(golden), policy=load_policy("default"))
    assert pair.compare(record).outcome == outcome


OWN_FORM = "valid_rows: {npu_mine: {argument: group_list, holds: ends}}"
HANDLER = "builtin_handlers.py:extract_valid_len_by_group_list"
FORM_OF_MSPROBE = f"compare_handlers: {{target: {{npu_mine: '{HANDLER}'}}, golden: {{}}}}"


@pytest.mark.parametrize(
    ("content", "groups"), [(OWN_FORM, [3, 6]), (FORM_OF_MSPROBE, [3, 3])], ids=["own form", "form of msprobe"]
)
def test_a_file_adds_operations_whose_last_rows_are_undefined(
    pytester: pytest.Pytester, tmp_path: Path, content: str, groups: list[int]
) -> None:
    (tmp_path / "rows.yaml").write_text(content)
    paths = [grouped(tmp_path / str(at), at, groups, 0) for at in (9.0, 1.0)]
    for path in paths:
        path.write_text(path.read_text().replace("npu_grouped_matmul", "npu_mine"))
    compared = [f"--msprobe-compare={paths[0]}", f"--msprobe-golden={paths[1]}"]
    assert run_pytest(pytester, *compared).ret == 1
    assert run_pytest(pytester, *compared, f"--msprobe-valid-rows={tmp_path / 'rows.yaml'}").ret == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("rows: {}", "not a file of valid rows; expected valid_rows, or msprobe's acc_check_handlers*"),
        ("valid_rows: {npu_mine: 3}", "valid_rows.npu_mine is 3*expected {argument: NAME*"),
        ("compare_handlers: {target: {npu_mine: 'mine.py:f'}}", "handler 'mine.py:f'*a file's code is not run*"),
        ("valid_rows: [", "*"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(
    pytester: pytest.Pytester, tmp_path: Path, content: str, text: str
) -> None:
    (tmp_path / "rows.yaml").write_text(content)
    path = grouped(tmp_path / "target", 1.0, [3, 6], 0)
    result = run_pytest(pytester, f"--msprobe-dump={path}", f"--msprobe-valid-rows={tmp_path / 'rows.yaml'}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--msprobe-valid-rows: *rows.yaml*{text}"])
