"""What a series is of: the same kinds, limits and rules whichever way the source of the run spells its tasks."""

from __future__ import annotations

import numpy as np
import pytest

from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from pytest_msprobe.extensions.monitor.golden.rank_pair import Pair
from pytest_msprobe.extensions.monitor.judging import load_policy
from pytest_msprobe.extensions.monitor.series_names import Kind, kind_of
from tests.support.dumps.drifting import STATISTICS, MemoryRun, trained

STEPS, FAULTY = 20, 7

_ENDS = {"actv": "forward", "actv_grad": "backward", "grad_reduced": "parameters_grad", "param_origin": "forward"}
_MONITOR_V2 = {
    "param_origin": "param_origin",
    "actv": "actv",
    "actv_grad": "actv_grad",
    "grad_reduced": "grad_unreduced",
}


def as_recorded(run: MemoryRun) -> MemoryRun:
    """Return the run as a recording spells it; forward tensors are computed again, as by checkpointing."""
    values = {}
    for key, series in run.without("param_updated").values.items():
        module, _, end = key.name.rpartition(".")
        place = {"input": "input.0", "output": "output.0", "weight": "weight"}[end]
        place = f"parameters.{place}" if key.task == "param_origin" else place
        name = f"Module.{module}.Linear.{place}"
        values[SeriesKey(_ENDS[key.task], 0, name, 0, key.statistic)] = series
        if key.task == "actv":
            values[SeriesKey("recompute", 0, name, 0, key.statistic)] = series.copy()
    return MemoryRun(values)


def as_watched_elsewhere(run: MemoryRun) -> MemoryRun:
    """Return the run without what one version of msprobe does not write, with gradients before the reduction."""
    kept = run.without("param_updated").values.items()
    return MemoryRun({SeriesKey(_MONITOR_V2[key.task], *key.watched[1:], key.statistic): each for key, each in kept})


SOURCES = {"watched": lambda run: run, "recorded": as_recorded, "unreduced": as_watched_elsewhere}


def departed(target: MemoryRun, golden: MemoryRun) -> dict[SeriesKey, int]:
    pair = Pair(target, golden)
    compared = {key: pair.compare(key) for key in golden.keys}
    return {key: int(each.steps[each.first_over]) for key, each in compared.items() if each.first_over is not None}


@pytest.mark.parametrize("source", SOURCES)
def test_one_percent_is_a_fault_in_each_kind_of_series_of_each_source(source: str) -> None:
    golden = SOURCES[source](trained(2, STEPS))
    honest = SOURCES[source](trained(2, STEPS, rounding=3e-8, seed=1))
    first = {(kind_of(key), key.task): key.watched for key in golden.keys}

    assert departed(honest, golden) == {}
    for tensor in first.values():
        faulty = [SeriesKey(*tensor, statistic) for statistic in STATISTICS]
        found = departed(honest.changed(slice(FAULTY, None), 1.01, *faulty), golden)
        # A mean near zero is held against the largest magnitude.
        assert found == {key: FAULTY for key in faulty if key.statistic != "mean"}


def test_recorded_calls_that_no_gradient_came_back_to_may_follow_the_gradients_of_the_step() -> None:
    golden = as_recorded(trained(2, STEPS))
    calls = {
        SeriesKey(task, 0, f"{call}.{place}", None, statistic): np.linspace(1, 2, STEPS)
        for task, call, place in (
            ("forward", "Functional.linear.0", "output.0"),
            ("backward", "Functional.linear.0", "input.0"),
            ("forward", "Tensor.mul_.0", "output"),
        )
        for statistic in STATISTICS
    }
    golden = MemoryRun(golden.values | calls)
    off = golden.changed(slice(FAULTY, None), 1.01, *(key for key in calls if key.task == "forward"))

    assert {key.name for key in departed(off, golden)} == {"Functional.linear.0.output.0"}


def test_a_gradient_that_is_rounding_only_does_not_show_the_dtype() -> None:
    units = np.random.default_rng(5).integers(1, 30, STEPS) * 2.0**-36
    noise = {
        SeriesKey("parameters_grad", 0, "Module.key.Linear.bias", 0, statistic): sign * units
        for statistic, sign in (("norm", 1), ("min", -1), ("max", 1), ("mean", 0))
    }
    run = MemoryRun(as_recorded(trained(2, STEPS)).values | noise)

    assert Pair(run, run).evidence.dtype == "float32"


@pytest.mark.parametrize(
    ("task", "name", "kind"),
    [
        ("forward", "Module.fc.Linear.parameters.weight", Kind.PARAMETER),
        ("forward", "Cell.parameters.Dense.input.0", Kind.ACTIVATION),
        ("forward", "Functional.linear.0.input.1", Kind.ACTIVATION),
        ("other", "all_reduce/pre_0", Kind.COLLECTIVE),
        ("other", "fc.weight", Kind.OTHER),
    ],
)
def test_the_name_decides_where_a_task_holds_several_kinds(task: str, name: str, kind: Kind) -> None:
    assert kind_of(SeriesKey(task, 0, name, None, "norm")) is kind


@pytest.mark.parametrize(
    ("watched", "recorded"),
    [
        ("actv/fc.input", "forward/Module.fc.Linear.input.0"),
        ("actv/fc.output", "recompute/Module.fc.Linear.output.0"),
        ("actv_grad/fc.input", "backward/Module.fc.Linear.output.0"),
        ("grad_reduced/fc.weight", "parameters_grad/Module.fc.Linear.weight"),
    ],
)
def test_the_default_policy_has_the_same_rules_for_recordings(watched: str, recorded: str) -> None:
    policy = load_policy("default", "float16")

    def rules(name: str) -> list[list[object]]:
        keys = [SeriesKey(name.partition("/")[0], 0, name.partition("/")[2], None, each) for each in STATISTICS]
        return [[rule.rule for rule in policy.rules_for(key)] for key in keys]

    assert rules(watched) == rules(recorded)


def test_ranks_of_a_recording_hold_the_same_parameters() -> None:
    key = SeriesKey("forward", 0, "Module.fc.Linear.parameters.weight", 0, "norm")

    assert load_policy("default").rank_limit(key) == 2e-6
