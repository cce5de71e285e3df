"""Verdicts on large calls with golden in blocks, next to those with golden as a whole."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from msprobe_hooks.dump.schema import ValueElement
from msprobe_standards import Policy
from msprobe_standards.benchmark import Benchmark
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.math_modes import ReducedPrecision
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.partition import plan_of_call
from pytest_msprobe.engine.replay.trials.block_trial import BlockTrial
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.outcomes import Skip, SkipReason
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import VariantDevice
from tests.corpus.faults import FAULTS
from tests.engine.replay.blockwise.calls import CALLS, x
from tests.support.dumps.dump_files import forward, tensor, value
from tests.support.dumps.recorder import Recorder
from tests.support.nightly import nightly_but
from tests.support.replays.devices import Altered, Faulty

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_DEFAULT = Policy.load("default")


def replayed(call: Any, policy: Policy, above: float | None, device: Any = None, **options: Any) -> Replay:
    return Replay(call, ReplayConfig(device or CpuDevice(), policy, TorchFramework(), raised_above=above, **options))


def is_whole(replay: Replay) -> bool:
    return "golden" in vars(replay.trial)


def verdicts(replay: Replay) -> list[tuple[str, str, str, tuple[int, ...]]]:
    results = [replay.forward(), replay.backward()]
    return [(o.path, o.verdict.outcome, o.golden_dtype, o.shape) for each in results for o in each.outputs]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_right_results_pass_in_blocks_with_the_numbers_of_the_whole(
    recorder: Any, default_policy: Policy, name: str, dtype: torch.dtype
) -> None:
    call = CALLS[name](recorder, dtype)
    in_blocks, whole = (replayed(call, default_policy, above) for above in (0, None))
    plan = plan_of_call(call, 0)
    assert plan is not None
    assert 1 <= plan.size < plan.cut.length
    for direction in ("forward", "backward"):
        found, expected = in_blocks.judge(direction), whole.judge(direction)
        assert [(o.path, o.verdict.outcome, o.golden_dtype, o.shape) for o in found.outputs] == [
            (o.path, o.verdict.outcome, o.golden_dtype, o.shape) for o in expected.outputs
        ]
        for ours, theirs in zip(found.outputs, expected.outputs, strict=True):
            shared = ours.verdict.metrics.keys() & theirs.verdict.metrics.keys()
            assert {key: ours.verdict.metrics[key] for key in shared} == pytest.approx(
                {key: theirs.verdict.metrics[key] for key in shared}, rel=0.01, abs=0.01
            )
        assert direction == "backward" or not is_whole(in_blocks)


def only_blocks() -> Callable[[int, Callable[[], float]], None]:
    """Return what lets a call's blocks in, and nothing after them."""
    admitted: list[int] = []

    def admit(needed: int, free: Callable[[], float]) -> None:
        if admitted:
            raise Skip(SkipReason.MEMORY, "no room")
        admitted.append(needed)

    return admit


VARIANTS = (*FAULTS, *CORRECT_DEVICES)
# The first of each kind, as the modules of the corpus divide them.
ONE_OF_EACH_KIND = {variant.kernel.__module__: variant for variant in reversed(VARIANTS)}.values()
EACH_VARIANT = pytest.mark.parametrize(
    "variant", nightly_but(VARIANTS, *ONE_OF_EACH_KIND), ids=lambda variant: variant.name
)


@pytest.fixture(scope="module")
def recorded() -> list[Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [make(Recorder(), dtype) for make in CALLS.values() for dtype in (torch.float32, torch.bfloat16)]


@pytest.mark.slow
@EACH_VARIANT
def test_faults_and_correct_devices_get_the_verdicts_of_the_whole(
    default_policy: Policy, recorded: list[Any], variant: Any
) -> None:
    for call in recorded:
        if variant.touches(call.name.api):
            found, expected = (
                verdicts(replayed(call, default_policy, above, VariantDevice(variant))) for above in (0, None)
            )
            assert found == expected, call.name.api


@pytest.mark.slow
@EACH_VARIANT
def test_blocks_alone_give_the_verdicts_of_the_whole_or_none(
    default_policy: Policy, recorded: list[Any], variant: Any
) -> None:
    for call in recorded:
        if variant.touches(call.name.api):
            found = replayed(call, default_policy, 0, VariantDevice(variant), admit=only_blocks())
            whole = replayed(call, default_policy, None, VariantDevice(variant))
            for direction in ("forward", "backward"):
                ours, theirs = found.judge(direction), whole.judge(direction)
                assert ours.skip is SkipReason.MEMORY or ours.outcome == theirs.outcome, call.name.api


def test_what_fails_is_reported_as_of_the_whole(recorder: Any, default_policy: Policy) -> None:
    call = CALLS["gelu"](recorder, torch.float32)
    device = Faulty(lambda result: result.index_fill_(0, torch.tensor([70]), 9.0))
    found, expected = (replayed(call, default_policy, above, device).forward() for above in (0, None))
    assert found.verdict == expected.verdict
    assert found.outputs == expected.outputs


def test_a_failure_that_does_not_fit_as_a_whole_is_judged_by_its_blocks(recorder: Any, default_policy: Policy) -> None:
    call = CALLS["gelu"](recorder, torch.float32)
    device = Faulty(lambda result: result.index_fill_(0, torch.tensor([70]), 9.0))
    replay = replayed(call, default_policy, 0, device, admit=only_blocks())
    result = replay.forward()
    assert result.outcome == "fail"
    assert "; at [70, " in result.verdict.reason
    assert not is_whole(replay)


def test_a_wrong_quotient_that_does_not_fit_as_a_whole_fails(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Torch.div(x(90, 40), x(90, 40).abs() + 1)
    device = Faulty(lambda result: result.index_fill_(0, torch.tensor([70]), 9.0))
    replay = replayed(call, default_policy, 0, device, admit=only_blocks())
    assert replay.forward().outcome == "fail"
    assert not is_whole(replay)


def test_baselines_are_computed_block_by_block(recorder: Any) -> None:
    policy = Policy.of(Benchmark(floor=1e-6))
    call = recorder.Torch.mm(x(30, 400), x(400, 90))
    found, expected = (replayed(call, policy, above) for above in (0, None))
    ours, theirs = found.forward(), expected.forward()
    assert "baseline" in vars(expected.trial)
    assert not {"golden", "baseline"} & vars(found.trial).keys()
    assert ours.outcome == theirs.outcome == "pass"
    # Of a few columns the CPU sums otherwise than of many.
    assert ours.verdict.limits == pytest.approx(theirs.verdict.limits, rel=0.5)


def test_a_sum_over_blocks_is_judged_next_to_the_baseline_of_the_whole(recorder: Any) -> None:
    policy = Policy.of(Benchmark(floor=1e-6))
    call = recorder.Torch.mm(x(30, 400), x(400, 90))
    found, expected = (replayed(call, policy, above) for above in (0, None))
    ours, theirs = (each.backward().outputs[0] for each in (found, expected))
    assert ours.path == theirs.path == "grad.args.0"
    assert ours.verdict.limits == pytest.approx(theirs.verdict.limits, rel=1e-3)
    assert "baseline" in vars(found.trial)
    assert not is_whole(found)


def test_a_sum_without_room_for_that_baseline_is_skipped(recorder: Any) -> None:
    call = recorder.Torch.mm(x(30, 400), x(400, 90))
    found = replayed(call, Policy.of(Benchmark(floor=1e-6)), 0, admit=only_blocks())
    assert found.forward().outcome == "pass"
    assert found.backward().skip is SkipReason.MEMORY


def test_a_failure_that_a_mode_of_the_device_may_explain_is_skipped_where_the_whole_does_not_fit(
    recorder: Any, default_policy: Policy
) -> None:
    class InTf32(Faulty):
        def reduced_precision(self) -> ReducedPrecision:
            return ReducedPrecision(matmul="tf32")

    device = InTf32(lambda result: result.bfloat16().float())
    call = CALLS["mm"](recorder, torch.float32)
    result = replayed(call, default_policy, 0, device, admit=only_blocks()).forward()
    assert result.skip is SkipReason.MEMORY
    strictly = replayed(call, default_policy, 0, device, admit=only_blocks(), math_mode="strict").forward()
    assert strictly.outcome == "fail"


@pytest.mark.parametrize(
    "options",
    [{"measure_all": True}, {"raised_above": None}, {"raised_above": 2.0**40}],
    ids=["all numbers", "never", "too small"],
)
def test_golden_is_whole_where_more_is_asked_and_below_the_size(
    recorder: Any, default_policy: Policy, options: dict[str, Any]
) -> None:
    replay = Replay(
        CALLS["gelu"](recorder, torch.float32),
        ReplayConfig(CpuDevice(), default_policy, TorchFramework(), **({"raised_above": 0} | options)),
    )
    assert replay.forward().outcome == "pass"
    assert is_whole(replay)


def test_nan_and_inf_are_judged_in_blocks(recorder: Any, default_policy: Policy) -> None:
    values = torch.randn(90, 100)
    values[3, 4], values[80, 1] = float("nan"), float("inf")
    for change, outcome in ((lambda result: result, "pass"), (lambda result: result.nan_to_num(0.0), "fail")):
        call = recorder.Torch.exp(values)
        found, expected = (replayed(call, default_policy, above, Faulty(change)) for above in (0, None))
        assert found.forward().verdict == expected.forward().verdict
        assert found.forward().outcome == outcome


def at(place: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Change some elements in a row, as they lie in memory."""

    def changed(result: torch.Tensor) -> torch.Tensor:
        flat = result.reshape(-1)
        part = flat[place % len(flat) :][:17]
        part.copy_(change(part.clone()))
        return flat.reshape(result.shape)

    return changed


CHANGES = st.builds(
    at,
    st.integers(0, 2**20),
    st.one_of(
        st.sampled_from([float("nan"), float("inf"), 0.0, -1.0]).map(lambda by: lambda part: part * by),
        st.floats(-3, 6).map(lambda power: lambda part: part * (1 + 10**power * torch.finfo(part.dtype).eps)),
    ),
)


@settings(max_examples=30)
@given(st.sampled_from(sorted(CALLS)), st.sampled_from(DTYPES), CHANGES, st.integers(0, 2**16))
def test_whatever_changes_some_elements_gets_the_verdicts_of_the_whole(
    name: str, dtype: torch.dtype, change: Callable[[torch.Tensor], torch.Tensor], seed: int
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        call = CALLS[name](Recorder(), dtype)
    found, expected = (verdicts(replayed(call, _DEFAULT, above, Faulty(change), seed=seed)) for above in (0, None))
    assert found == expected


@pytest.mark.parametrize("floor", [1e-6, 1.0], ids=["next to the baseline", "alone"])
def test_a_block_is_let_go_of_before_the_next(recorder: Any, monkeypatch: pytest.MonkeyPatch, floor: float) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    of_golden = BlockTrial.of_golden
    counted = 0

    def watched(block: BlockTrial) -> Any:
        nonlocal counted
        assert not [each for each in alive if each() is not None]
        found = of_golden(block)
        assert found is not None
        alive[:] = map(weakref.ref, found.values())
        counted += 1
        return found

    monkeypatch.setattr(BlockTrial, "of_golden", watched)
    replay = replayed(CALLS["softmax"](recorder, torch.bfloat16), Policy.of(Benchmark(floor=floor)), 0)
    assert replay.forward().outcome == replay.backward().outcome == "pass"
    assert counted > 4
    assert not is_whole(replay)


WITHOUT_ELEMENTS: dict[str, Callable[[Any], Any]] = {
    "no rows": lambda of: of.Torch.mm(x(0, 40), x(40, 50)),
    "no columns": lambda of: of.Functional.linear(x(30, 40), x(0, 40), x(0)),
    "nothing to sum": lambda of: of.Torch.mm(x(30, 0), x(0, 50)),
    "no index": lambda of: of.Functional.embedding(torch.zeros(0, dtype=torch.int64), x(100, 64)),
    "an empty batch": lambda of: of.Torch.matmul(x(0, 30, 40), x(40, 50)),
}


@pytest.mark.parametrize("what", WITHOUT_ELEMENTS)
def test_results_and_gradients_without_elements_get_the_verdicts_of_the_whole(
    recorder: Any, default_policy: Policy, what: str
) -> None:
    call = WITHOUT_ELEMENTS[what](recorder)
    assert plan_of_call(call, 0) is not None
    found, expected = (verdicts(replayed(call, default_policy, above)) for above in (0, None))
    assert found == expected
    assert {outcome for _, outcome, *_ in found} == {"pass"}


def test_gradients_that_are_rounding_alone_are_left_to_the_whole(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Functional.softmax(x(60, 100), dim=-1)
    assert call.backward is not None
    ones = structs.replace(call.backward.grad_outputs[0], max=1.0, min=1.0, mean=1.0, norm=60.0)
    call = replace(call, backward=structs.replace(call.backward, grad_outputs=[ones]))
    replay = replayed(call, default_policy, 0)
    assert replay.backward().outcome == "pass"
    assert is_whole(replay)


@pytest.mark.parametrize("first", [True, False], ids=["after its forward record", "alone"])
def test_gradients_of_results_that_show_nothing_are_left_to_the_whole(
    recorder: Any, default_policy: Policy, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setattr("pytest_msprobe.engine.replay.trials.trial.LARGE", 100)
    # Logits of which only the extrema are known, and probabilities that were not one-hot.
    logits = tensor(160, 64, low=-3e4, high=3e4, requires_grad=True)
    softmax = forward(logits, value(-1), output=[tensor(160, 64, low=0.0, high=0.2, Mean=1 / 64, Norm=2.5)])
    gradients = {"input": [tensor(160, 64)], "output": [tensor(160, 64, low=-0.1, high=0.1)]}
    replay = replayed(recorder.keep("Functional.softmax.0", softmax, gradients), default_policy, 0)
    if first:
        assert replay.forward().outcome == "pass"
    assert replay.backward().outcome == "pass"
    assert is_whole(replay)


def test_a_replay_that_is_dropped_keeps_no_tensor(recorder: Any, default_policy: Policy) -> None:
    replay = replayed(CALLS["gelu"](recorder, torch.float32), default_policy, 0)
    assert replay.forward().outcome == replay.backward().outcome == "pass"
    trial = weakref.ref(replay.trial)
    gc.disable()
    try:
        del replay
        assert trial() is None
    finally:
        gc.enable()


def test_inputs_that_the_cpu_rejects_do_not_reach_the_device(recorder: Any, default_policy: Policy) -> None:
    class Untouched(CpuDevice):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            raise AssertionError(record)

    call = CALLS["softmax"](recorder, torch.float32)
    call.forward.kwargs["dtype"] = ValueElement("torch.dtype", "torch.bool")
    result = replayed(call, default_policy, 0, Untouched()).forward()
    assert result.skip is SkipReason.NO_GOLDEN


@pytest.mark.parametrize(("factor", "outcome"), [(1, "pass"), (-3, "fail")])
def test_failures_in_16_bits_are_decided_against_blocks_in_float64(
    recorder: Any, default_policy: Policy, factor: int, outcome: str
) -> None:
    # In float32 the exponential overflows there: golden is -0, where bfloat16 has normal numbers.
    values = torch.linspace(-92, -88.75, 64).repeat(64, 1).to(torch.bfloat16)
    device = Altered(lambda func, args, kwargs: factor * func(args[0].double()).to(args[0].dtype))
    setup = ReplayConfig(device, default_policy, TorchFramework(), raised_above=0, admit=only_blocks())
    replay = Replay(recorder.Functional.silu(values), setup, lambda element, path: values)
    result = replay.forward()
    assert (result.verdict.outcome, result.outputs[0].golden_dtype) == (outcome, "torch.float64")
    assert not is_whole(replay)
