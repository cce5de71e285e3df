"""Two runs compared series by series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from pytest_msprobe.extensions.monitor.golden.rank_pair import Pair
from tests.support.dumps.drifting import STATISTICS, MemoryRun, trained

LAYERS, STEPS, ROUNDING = 4, 40, 3e-8


def first_departure(pair: Pair, run: MemoryRun) -> tuple[int, str, str] | None:
    """Return step, task and name of the first departure in the order computed."""
    found = [
        (int(compared.steps[at]), order, key)
        for order, key in enumerate(run.keys)
        if (compared := pair.compare(key)).first_over is not None and (at := compared.first_over) is not None
    ]
    if not found:
        return None
    step, _, key = min(found, key=lambda each: each[:2])
    return step, key.task, key.name


def of(task: str, name: str) -> list[SeriesKey]:
    return [SeriesKey(task, 0, name, None, statistic) for statistic in STATISTICS]


@pytest.fixture(scope="module")
def golden() -> MemoryRun:
    return trained(LAYERS, STEPS)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(1, 10**6))
def test_runs_that_differ_by_rounding_only_stay_within_the_tolerance(golden: MemoryRun, seed: int) -> None:
    honest = trained(LAYERS, STEPS, rounding=ROUNDING, seed=seed)

    assert first_departure(Pair(honest, golden), golden) is None


@settings(max_examples=4, deadline=None)
@given(step=st.integers(0, STEPS - 1), layer=st.integers(0, LAYERS - 1), factor=st.sampled_from([1.001, 0.999, 3.0]))
def test_a_backward_fault_is_named_by_its_step_and_layer(
    golden: MemoryRun, step: int, layer: int, factor: float
) -> None:
    behind = [key for i in range(layer + 1) for key in of("actv_grad", f"layers.{i}.input")]
    faulty = trained(LAYERS, STEPS, rounding=ROUNDING, seed=1).changed(slice(step, None), factor, *behind)

    assert first_departure(Pair(faulty, golden), golden) == (step, "actv_grad", f"layers.{layer}.input")


def test_a_difference_may_grow_step_by_step_and_not_at_once(golden: MemoryRun) -> None:
    series = of("grad_reduced", "layers.2.weight")
    grown = golden
    for step in range(5, STEPS):
        grown = grown.changed(slice(step, step + 1), 1 + min(1e-7 * 2.0 ** (step - 5), 0.5), *series)
    jumped = golden.changed(slice(5, None), 1.5, *series)

    assert first_departure(Pair(grown, golden), golden) is None
    assert first_departure(Pair(jumped, golden), golden) == (5, "grad_reduced", "layers.2.weight")


def test_a_gradient_that_is_rounding_only_is_not_judged_nor_is_its_parameter(golden: MemoryRun) -> None:
    noise = np.random.default_rng(3)
    tiny = {key: 1e-9 * noise.normal(size=STEPS) for key in of("grad_reduced", "key.bias")}
    other = {key: 1e-9 * noise.normal(size=STEPS) for key in tiny}
    wandering = {key: 1e-3 * noise.normal(size=STEPS) for key in of("param_updated", "key.bias")}
    elsewhere = {key: 1e-3 * noise.normal(size=STEPS) for key in wandering}
    ours, theirs = MemoryRun(golden.values | tiny | wandering), MemoryRun(golden.values | other | elsewhere)

    assert first_departure(Pair(ours, theirs), theirs) is None


def test_a_unit_that_switches_behind_a_relu_excuses_gradients_but_no_forward_tensor() -> None:
    kinked = trained(LAYERS, STEPS, kinked=True)
    switched = kinked.changed(slice(9, None), 1.05, *of("actv_grad", "layers.1.input")[:1])
    forward = kinked.changed(slice(9, None), 1.05, *of("actv", "layers.1.output"))

    assert first_departure(Pair(switched, kinked), kinked) is None
    assert first_departure(Pair(forward, kinked), kinked) == (9, "actv", "layers.1.output")


def test_units_that_switch_change_more_once_most_gradients_are_apart() -> None:
    kinked = trained(LAYERS, STEPS, kinked=True)
    gradients = [key for key in kinked.keys if key.task in ("actv_grad", "grad_reduced")]
    drifted = kinked.changed(slice(5, 20), 1.004, *(key for key in gradients if key.statistic == "norm"))
    behind = of("actv_grad", "layers.1.input")[:1]

    assert first_departure(Pair(drifted.changed(slice(9, None), 1.6, *behind), kinked), kinked) is None
    assert first_departure(Pair(kinked.changed(slice(9, None), 1.6, *behind), kinked), kinked) == (
        9,
        "actv_grad",
        "layers.1.input",
    )


def test_a_gradient_times_one_factor_is_no_unit_that_switched() -> None:
    kinked = trained(LAYERS, STEPS, kinked=True, rounding=ROUNDING)
    scaled = kinked.changed(slice(9, None), 1.001, *of("actv_grad", "layers.1.input"))

    assert first_departure(Pair(scaled, kinked), kinked) == (9, "actv_grad", "layers.1.input")


def test_shares_of_zeros_show_whether_a_unit_switched() -> None:
    kinked = trained(LAYERS, STEPS, kinked=True)
    zeros = {SeriesKey("actv_grad", 0, f"layers.{i}.output", None, "zeros"): np.full(STEPS, 0.5) for i in range(LAYERS)}
    golden = MemoryRun(kinked.values | zeros)
    changed = golden.changed(slice(9, None), 1.05, *of("actv_grad", "layers.1.input")[:1])
    switched = changed.changed(slice(9, 10), 1.01, SeriesKey("actv_grad", 0, "layers.1.output", None, "zeros"))
    order = sorted(golden.keys, key=lambda key: list(kinked.keys).index(SeriesKey(*key_of(key), "norm")))
    runs = [MemoryRun({key: run.values[key] for key in order}) for run in (golden, changed, switched)]

    assert first_departure(Pair(runs[1], runs[0]), golden) == (9, "actv_grad", "layers.1.input")
    assert first_departure(Pair(runs[2], runs[0]), golden) is None


def key_of(key: SeriesKey) -> tuple[str, int, str, int | None]:
    return key.task, key.vpp_stage, key.name, key.micro_step


def test_golden_reruns_narrow_the_tolerance_and_widen_it_where_they_differ(golden: MemoryRun) -> None:
    off = golden.changed(slice(20, None), 1 + 2e-5, *of("grad_reduced", "layers.1.weight"))
    steady = trained(LAYERS, STEPS, rounding=ROUNDING, seed=2)
    as_far = golden.changed(slice(18, None), 1 + 1e-5, *of("grad_reduced", "layers.1.weight"))

    assert first_departure(Pair(off, golden), golden) is None
    assert first_departure(Pair(off, golden, [steady]), golden) == (20, "grad_reduced", "layers.1.weight")
    assert first_departure(Pair(off, golden, [steady, as_far]), golden) is None


def test_runs_that_begin_apart_may_differ_at_their_first_common_step(golden: MemoryRun) -> None:
    drifted = golden.changed(slice(None), 1.01, *of("grad_reduced", "layers.1.weight"))

    assert first_departure(Pair(drifted.later(10), golden), golden) is None
    assert first_departure(Pair(drifted, golden), golden) == (0, "grad_reduced", "layers.1.weight")


def test_what_the_file_rounded_away_is_no_difference(golden: MemoryRun) -> None:
    small = {key: 1e-3 * values for key, values in golden.values.items()}
    coarse = MemoryRun({key: np.round(values, 6) for key, values in small.items()})

    assert first_departure(Pair(coarse, MemoryRun(small)), golden) is None


def test_bfloat16_may_differ_by_its_own_roundings(golden: MemoryRun) -> None:
    off = golden.changed(slice(3, None), 1.02, *of("actv_grad", "layers.1.input"))

    assert first_departure(Pair(off, golden, dtype="bfloat16"), golden) is None
    assert first_departure(Pair(off, golden), golden) == (3, "actv_grad", "layers.1.input")


def test_one_more_nan_is_no_rounding() -> None:
    key = SeriesKey("grad_reduced", 0, "w", None, "nans")
    golden, target = MemoryRun({key: np.zeros(5)}), MemoryRun({key: np.array([0, 0, 0, 1.0, 1.0])})

    assert first_departure(Pair(target, golden), golden) == (3, "grad_reduced", "w")
