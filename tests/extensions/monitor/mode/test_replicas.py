"""Ranks of one run: a parameter that all of them hold alike must stay alike."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.dumps.watched import norm, write_norms
from tests.support.runs import check

STEPS = 20
LEARNING = 2.3456 + 0.01 * np.arange(STEPS)
OWN = {rank: 3.1 + rank + 0.02 * np.arange(STEPS) for rank in range(3)}


def write(pytester: pytest.Pytester, weights: Sequence[dict[str, np.ndarray]], task: str = "param_updated") -> str:
    for rank, series in enumerate(weights):
        folder = pytester.path / "runs" / f"Dec03_21-34-40-rank{rank}-{rank}d6d9d83"
        write_norms(folder, {norm(name, task): values for name, values in series.items()})
    return "runs"


def parting(step: int, by: float = 1e-4) -> np.ndarray:
    return LEARNING + np.where(np.arange(STEPS) >= step, by, 0.0)


def monitored(pytester: pytest.Pytester, weights: Sequence[dict[str, np.ndarray]], *options: str):
    return check(pytester, "--msprobe-monitor", write(pytester, weights), *options)


@pytest.mark.parametrize(("guilty", "others"), [(0, "ranks 1, 2"), (2, "ranks 0, 1")])
def test_the_rank_that_leaves_the_others_is_named(pytester, guilty, others):
    weights = [{"norm.weight": parting(12) if rank == guilty else LEARNING} for rank in range(3)]
    checked = monitored(pytester, weights)
    checked.result.stdout.fnmatch_lines(
        [
            f"first at step 12: rank {guilty}, param_updated/norm.weight/norm",
            f"  replicas: norm is 2.4657, on {others} 2.4656: parted by 4.1e-05 after they were equal",
        ]
    )
    assert checked.exit_code == 1
    assert "3 series: 2 passed, 1 failed" in checked.result.outlines


def test_of_two_ranks_it_is_not_claimed_to_know_which_is_wrong(pytester):
    checked = monitored(pytester, [{"a": LEARNING}, {"a": parting(12)}])
    checked.result.stdout.fnmatch_lines(["  replicas: *; which of the two is wrong is not known"])


def test_what_is_split_over_ranks_is_no_alarm_and_is_said_not_to_be_compared(pytester):
    checked = monitored(pytester, [{"a": LEARNING, "split": OWN[rank]} for rank in range(2)])
    assert checked.exit_code == 0
    checked.result.stdout.fnmatch_lines(
        ["1 of 2 parameters not compared between ranks: each rank began with its own values, * (split)"]
    )


def test_what_parts_at_the_first_update_warns_with_both_readings(pytester):
    checked = monitored(pytester, [{"a": LEARNING, "b": LEARNING}, {"a": LEARNING, "b": parting(1)}])
    assert checked.exit_code == 0
    checked.result.stdout.fnmatch_lines(
        [
            "warned at step 1: rank 1, param_updated/b/norm",
            "  replicas: *: its gradient is not reduced, or each rank has its own; *",
        ]
    )


def test_a_bias_of_zeros_is_no_copy_where_other_parameters_part_at_once(pytester):
    # Experts that began with one seed: Adam's first steps are its rate for each element.
    bias = 0.003 * np.arange(STEPS)
    other = np.where(np.arange(STEPS) > 6, bias + 1e-3, bias)
    checked = monitored(pytester, [{"w": LEARNING, "b": bias}, {"w": parting(1), "b": other}])
    assert checked.exit_code == 0
    assert "4 series: 2 passed, 2 warned" in checked.result.outlines


def test_a_bias_of_zeros_that_ranks_hold_alike_is_judged(pytester):
    bias = 0.003 * np.arange(STEPS)
    other = np.where(np.arange(STEPS) >= 8, bias + 1e-3, bias)
    checked = monitored(pytester, [{"w": LEARNING, "b": bias}, {"w": LEARNING, "b": other}])
    checked.result.stdout.fnmatch_lines(["first at step 8: rank 1, param_updated/b/norm"])


def test_differences_of_rounding_are_no_alarm(pytester):
    assert monitored(pytester, [{"a": LEARNING}, {"a": LEARNING * (1 + 1e-6)}]).exit_code == 0


def test_ranks_without_parameters_are_said_not_to_be_compared(pytester):
    runs = write(pytester, [{"a": LEARNING}, {"a": LEARNING}], "grad_reduced")
    checked = check(pytester, "--msprobe-monitor", runs)
    assert "ranks not compared with each other: no parameters are monitored" in checked.result.outlines


def test_a_policy_sets_the_limit_or_leaves_it_out(pytester):
    runs = write(pytester, [{"a": LEARNING}, {"a": parting(12)}])
    (pytester.path / "own.yaml").write_text("rules: [{rule: replicas, limits: {apart: 1.0e-3}}]")
    assert check(pytester, "--msprobe-monitor", runs, "--msprobe-policy", "own.yaml").exit_code == 0
    (pytester.path / "own.yaml").write_text("rules: [{rule: nan}]")
    assert check(pytester, "--msprobe-monitor", runs, "--msprobe-policy", "own.yaml").exit_code == 0


def test_the_command_of_a_failure_judges_the_item_by_the_other_ranks_again(pytester):
    weights = [{"a": LEARNING}, {"a": parting(12)}]
    checked = monitored(pytester, weights)
    (line,) = [line for line in checked.result.outlines if line.startswith("Run this item alone: ")]
    again = check(pytester, *shlex.split(line)[5:])
    again.result.stdout.fnmatch_lines(["first at step 12: param_updated/a/norm", "  replicas: *"])
