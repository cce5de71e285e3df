"""The line that a recording ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from msprobe_hooks import record

MODEL = torch.nn.Sequential(torch.nn.Softmax(-1))


def recorded(path: Path, **options: Any) -> None:
    with record(path, **options):
        # Of an overflow check only what overflows is written.
        MODEL(torch.full((2, 3), 3e38) * 2)


def test_it_says_how_much_was_written_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "run")
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("msprobe_hooks: recorded 3 calls in ")
    assert f" KiB, into {tmp_path / 'run' / 'step0' / 'rank'}; " in line


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({}, "check it with: pytest --msprobe-dump {path}"),
        ({"task": "overflow_check"}, "read it with: pytest --msprobe-overflow {path}"),
        ({"spool_size": "1GiB"}, "check it with: pytest-msprobe follow {path}"),
        (
            {"level": "L0", "model": MODEL},
            "compare it with: pytest --msprobe-compare {path} --msprobe-golden ANOTHER_RUN",
        ),
    ],
)
def test_it_names_the_command_that_reads_the_recording(
    options: dict[str, Any], command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "a run", **options)
    assert capsys.readouterr().err.endswith(command.format(path=f"'{tmp_path}/a run'") + "\n")


def test_a_search_that_found_nothing_names_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with record(tmp_path / "run", task="overflow_check"):
        MODEL(torch.ones(2, 3))
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("msprobe_hooks: no inf or nan arises, so nothing was written: checked 1 record in ")
    assert "pytest" not in line


def test_it_is_silent_when_asked_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "run", quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("rank", "speaks"), [(0, True), (1, False)])
def test_one_rank_speaks_for_all(rank: int, speaks: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        recorded(tmp_path / "run")
    finally:
        dist.destroy_process_group()
    assert ("msprobe_hooks: " in capsys.readouterr().err) is speaks
