"""Where two runs part first: real runs with one known change, under the default policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.modes.compare.rows import ComparedCall, decode, encode

CHANGED = [
    "gpt2-26.2.0-mix-statistics/perturb",
    "llama-fp32-26.2.0-mix-statistics/bf16op",
    "lstm-1.2.2-L1-statistics/perturb",
    "lstm-26.2.0-L1-tensor/perturb",
    "lstm-26.2.0-mix-statistics/bf16op",
    "lstm-26.2.0-mix-statistics/perturb",
    "resnet18-26.2.0-L1-statistics/perturb",
]
UNCHANGED = [
    "gpt2-26.2.0-mix-statistics/rename",
    "llama-fp32-26.2.0-mix-statistics/reorder",
    "lstm-1.2.2-L1-statistics/reorder",
    "lstm-26.2.0-mix-statistics/identical",
    "lstm-26.2.0-mix-statistics/rename",
    "lstm-26.2.0-mix-statistics/reorder",
    "resnet18-26.2.0-mix-statistics/reorder",
]


def compared(folder: Path, policy: str = "default", **options: Any) -> list[ComparedCall]:
    target, golden = read_dump(folder / "dump.json"), read_dump(folder.parent / "base" / "dump.json")
    pair = DumpPair(0, target, golden, policy=load_policy(policy), **options)
    return [pair.compare(name) for name in pair.orders]


def truth_of(real_runs: Path, run: str) -> dict[str, Any]:
    pair, variant = run.split("/")
    truths = json.loads((real_runs / "ground_truth.json").read_text())
    return next(truth for truth in truths if (truth["pair"], truth["variant"]) == (pair, variant))


@pytest.mark.parametrize("run", CHANGED)
def test_the_first_culprit_is_the_changed_layer(real_runs: Path, run: str) -> None:
    calls = compared(real_runs / run)
    culprits = [call for call in calls if call.cause == "culprit" and ".forward" in call.record]
    truth = truth_of(real_runs, run)
    assert culprits[0].record == truth["api"]
    assert not truth["module"] or culprits[0].module == truth["module"]
    assert any(call.outcome == "fail" for call in calls)


@pytest.mark.parametrize("policy", ["default", "msprobe-1.2", "msprobe-26"])
@pytest.mark.parametrize("run", UNCHANGED)
def test_equal_runs_have_no_culprit(real_runs: Path, run: str, policy: str) -> None:
    calls = compared(real_runs / run, policy)
    assert {call.outcome for call in calls} == {"pass"}
    assert not any(call.cause for call in calls)


def test_what_the_changed_layer_feeds_inherits_its_error(real_runs: Path) -> None:
    calls = {call.record: call for call in compared(real_runs / "lstm-26.2.0-mix-statistics" / "perturb")}
    for name in ("Torch.tanh.0.forward", "Tensor.__mul__.0.forward", "Functional.linear.2.forward"):
        assert calls[name].cause == "inherited"


def test_the_module_around_the_culprit_is_no_culprit(real_runs: Path) -> None:
    calls = {call.record: call for call in compared(real_runs / "llama-fp32-26.2.0-mix-statistics" / "bf16op")}
    assert calls["Module.model.layers.0.mlp.up_proj.Linear.forward.0"].cause == "inherited"


def test_the_worst_element_of_a_tensor_is_named(real_runs: Path) -> None:
    calls = {call.record: call for call in compared(real_runs / "lstm-26.2.0-L1-tensor" / "perturb")}
    weight = calls["Functional.linear.1.forward"].rows[1]
    # Only weight[0, 0] was changed.
    assert weight.worst == (0, 0)
    assert weight.metrics["rel_err_thousandth"] == 1 - 1 / (24 * 24)


def test_rows_cross_processes_unchanged(real_runs: Path) -> None:
    for call in compared(real_runs / "lstm-26.2.0-L1-tensor" / "perturb"):
        assert decode(encode(call)) == call


@pytest.mark.parametrize("largest", [2.0, 2.00001], ids=["equal", "not equal"])
def test_runs_that_agree_within_limits_are_not_called_equal(
    compare: Any, runs: Any, call: Any, tensor: Any, largest: float
) -> None:
    """An error of 1e-5 / 2 is within the limit of 2.4e-4."""
    first = {"Torch.exp.0.forward": call(tensor(4, 4), out=tensor(4, 4, Max=1.5))}
    sides = [first | {"Torch.sin.0.forward": call(tensor(4, 4), out=tensor(4, 4, Max=most))} for most in (largest, 2.0)]
    lines = compare(*runs.both(*sides)).stdout.lines
    (line,) = (line for line in lines if line.startswith("no compared call differs"))
    if largest == 2.0:
        assert line == "no compared call differs"
    else:
        assert "by more than its limit; the first that is not equal: Torch.sin.0.forward output.0, scaled" in line
