"""Runs of several steps and ranks, compared rank by rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Compare = Callable[..., pytest.RunResult]


def test_steps_and_ranks_are_paired_by_their_numbers(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    for rank in (2, 9, 10):
        records = {f"Torch.mm.{rank}.forward": call(tensor(rank))}
        runs.write(f"golden/step0/rank{rank}", records)
        wrong = {f"Torch.mm.{rank}.forward": call(tensor(rank), out=tensor(rank, at=7))}
        runs.write(f"target/step0/rank{rank}", wrong if rank == 9 else records)
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "step 0, rank 9: first forward culprit: Torch.mm.9.forward *",
            "wrong calls by rank and step:",
            "*step0",
            "*rank2 *ok",
            "*rank9 *1",
            "*rank10 *ok",
        ]
    )


def test_a_rank_that_one_side_lacks_is_an_error(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    records = {"Torch.mm.0.forward": call(tensor(2))}
    for folder in ("target/step0/rank0", "target/step0/rank1", "golden/step0/rank0"):
        runs.write(folder, records)
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.stderr.fnmatch_lines(
        ["*rank1/dump.json: the golden run has no dump of step 0 and rank 1; it has step 0 and rank 0; *"]
    )


def test_a_rank_of_which_nothing_was_compared_is_not_called_ok(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    for side in ("target", "golden"):
        runs.write(f"{side}/step0/rank0", {"Torch.relu.0.forward": call(tensor(2))})
        runs.write(f"{side}/step0/rank1", {"Torch.relu.0.forward": {"input_args": [], "output": []}})
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.stdout.fnmatch_lines(["*rank0 *ok", "*rank1 *not compared"])
