"""Runs whose steps are recorded in stages, as veRL does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Compare = Callable[..., pytest.RunResult]
STAGES = ("actor_update", "old_log_prob")


def test_stages_are_paired_by_their_names(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    for stage in STAGES:
        records = {"Torch.mm.0.forward": call(tensor(2))}
        runs.write(f"golden/step_1/{stage}/step0/rank0", records)
        wrong = {"Torch.mm.0.forward": call(tensor(2), out=tensor(2, at=7))}
        runs.write(f"target/step_1/{stage}/step0/rank0", wrong if stage == "actor_update" else records)
    result = compare(runs.folder / "target", runs.folder / "golden", "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ Torch.mm.0.forward (step_1/actor_update/step0/rank0) _*",
            "stage step_1/actor_update, step 0, rank 0: first forward culprit: Torch.mm.0.forward *",
            "*step_1/actor_update/step0  step_1/old_log_prob/step0",
            "*rank0 *1 *ok",
        ]
    )


def test_a_stage_that_one_side_lacks_is_an_error(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    records = {"Torch.mm.0.forward": call(tensor(2))}
    for stage in STAGES:
        runs.write(f"target/step_1/{stage}/step0/rank0", records)
    runs.write("golden/step_1/actor_update/step0/rank0", records)
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.stderr.fnmatch_lines(
        [
            "*old_log_prob/step0/rank0/dump.json: the golden run has no dump of stage step_1/old_log_prob, step 0 and "
            "rank 0; it has stage *; stages are paired by name*"
        ]
    )


def test_one_stage_is_compared_with_another(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    for rank in (0, 1):
        for stage in STAGES:
            runs.write(f"run/step_1/{stage}/step0/rank{rank}", {"Torch.mm.0.forward": call(tensor(2))})
    folder = runs.folder / "run" / "step_1"
    compare(folder / "actor_update", folder / "old_log_prob").assert_outcomes(passed=2)
