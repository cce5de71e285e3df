"""Comparisons divided among the jobs of an array, by steps and ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.commands.main import main

Compare = Callable[..., pytest.RunResult]


@pytest.fixture
def eight_ranks(runs: Any, call: Any, tensor: Any) -> Path:
    """Write two runs of four ranks and two steps, in which rank 2 of step 1 differs; return their folder."""
    for step in (0, 1):
        for rank in range(4):
            records = {"Torch.mm.0.forward": call(tensor(2))}
            wrong = {"Torch.mm.0.forward": call(tensor(2), out=tensor(2, at=7))}
            runs.write(f"golden/step{step}/rank{rank}", records)
            runs.write(f"target/step{step}/rank{rank}", wrong if (step, rank) == (1, 2) else records)
    return Path(runs.folder)


def test_shards_of_a_comparison_have_every_rank_once(compare: Compare, eight_ranks: Path) -> None:
    ids: list[str] = []
    for number in (1, 2, 3):
        options = (f"--msprobe-shard={number}/3", "--collect-only", "-q")
        result = compare(eight_ranks / "target", eight_ranks / "golden", *options)
        ids += [line for line in result.outlines if "::" in line]
    places = sorted(line.partition("target/")[2].partition("/dump.json")[0] for line in ids)
    assert places == [f"step{step}/rank{rank}" for step in (0, 1) for rank in range(4)]


def test_only_the_shard_with_the_wrong_rank_fails(compare: Compare, eight_ranks: Path) -> None:
    failed = []
    for number in (1, 2, 3):
        result = compare(eight_ranks / "target", eight_ranks / "golden", f"--msprobe-shard={number}/3")
        result.stdout.fnmatch_lines([f"msprobe: shard {number}/3"])
        failed.append(result.parseoutcomes().get("failed", 0))
    # The seventh of eight dumps is the third of the first shard's.
    assert failed == [1, 0, 0]


def test_journals_of_a_divided_comparison_are_one_report(
    compare: Compare, eight_ranks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 3):
        journal = f"--msprobe-journal={eight_ranks / f'{number}.jsonl'}"
        compare(eight_ranks / "target", eight_ranks / "golden", f"--msprobe-shard={number}/3", journal)
    journals = [str(eight_ranks / f"{number}.jsonl") for number in (1, 2, 3)]
    capsys.readouterr()
    main(["report", *journals])
    whole = capsys.readouterr().out
    assert "7 passed, 1 failed" in whole or "1 failed, 7 passed" in whole, whole
    main(["report", *journals[:2]])
    assert "3/3" in capsys.readouterr().out


def test_a_part_is_resumed_by_the_same_part_alone(compare: Compare, eight_ranks: Path) -> None:
    sides, journal = (eight_ranks / "target", eight_ranks / "golden"), eight_ranks / "1.jsonl"
    compare(*sides, "--msprobe-shard=1/3", f"--msprobe-journal={journal}", "-x")
    resumed = compare(*sides, "--msprobe-shard=1/3", f"--msprobe-resume={journal}")
    assert resumed.parseoutcomes().get("deselected") == 3
    other = compare(*sides, "--msprobe-shard=2/3", f"--msprobe-resume={journal}")
    other.stderr.fnmatch_lines(["ERROR: *1.jsonl: was made with shard 1/3, this run has 2/3; *"])


@pytest.mark.parametrize(
    ("target", "shard", "said"),
    [
        ("target", "2/9", "a comparison is divided by steps and ranks, and * has 8; use at most 8 shards"),
        ("target/step0/rank0/dump.json", "1/2", "*rank0/dump.json has 1; remove --msprobe-shard"),
    ],
)
def test_more_shards_than_dumps_are_an_error(
    compare: Compare, eight_ranks: Path, target: str, shard: str, said: str
) -> None:
    golden = target.replace("target", "golden")
    result = compare(eight_ranks / target, eight_ranks / golden, f"--msprobe-shard={shard}")
    result.stderr.fnmatch_lines([f"ERROR: --msprobe-shard {shard}: *{said}"])


def test_a_rank_that_the_golden_run_lacks_is_an_error_of_every_shard(compare: Compare, eight_ranks: Path) -> None:
    (eight_ranks / "golden/step1/rank3/dump.json").unlink()
    for number in (1, 2):
        result = compare(eight_ranks / "target", eight_ranks / "golden", f"--msprobe-shard={number}/2")
        result.stderr.fnmatch_lines(["*rank3/dump.json: the golden run has no dump of step 1 and rank 3*"])
