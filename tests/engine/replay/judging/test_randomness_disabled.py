"""Random calls are run a second time with their randomness switched off, and judged like any other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import LITTLE_JUDGED, OutputResult
from tests.support.replays.at_rest import OffAtRest, assert_judged_whole, assert_wrong_at_rest
from tests.support.replays.devices import Altered

SDPA = F.scaled_dot_product_attention


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def heads() -> tuple[torch.Tensor, ...]:
    return tuple(x(2, 4, 12, 16) for _ in range(3))


def weights(gates: int) -> list[torch.Tensor]:
    """Those of two layers from 6 to 8 features."""
    shapes = [(8 * gates, 6), (8 * gates, 8), (8 * gates,), (8 * gates,), (8 * gates, 8), (8 * gates, 8), (8 * gates,)]
    return [x(*shape) for shape in (*shapes, (8 * gates,))]


def recurrent(name: str, gates: int, *, packed: bool = False) -> Callable[[Any], Any]:
    def make(recorder: Any) -> Any:
        state = torch.zeros(2, 3, 8)
        states = [state, state] if name == "lstm" else state
        rest = (True, 2, 0.5, True, False)
        if packed:
            data, sizes = x(7, 6), torch.tensor([3, 2, 1, 1])
            return recorder.VF[name](data, sizes, states, weights(gates), *rest)
        return recorder.VF[name](x(3, 5, 6), states, weights(gates), *rest, True)

    return make


def multi_head(recorder: Any) -> Any:
    tensors = (x(5, 2, 12), x(5, 2, 12), x(5, 2, 12))
    shared = (12, 3, x(36, 12), x(36), None, None, False)
    return recorder.Functional.multi_head_attention_forward(*tensors, *shared, 0.5, x(12, 12), x(12), True)


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "attention": (lambda recorder: attention(recorder), "dropout_p=0"),
    "attention by keyword": (
        lambda recorder: recorder.Functional.scaled_dot_product_attention(*heads(), dropout_p=0.3, is_causal=True),
        "dropout_p=0",
    ),
    "ATen's attention": (
        lambda recorder: recorder.Aten._scaled_dot_product_attention_math(*heads(), None, 0.3), "dropout_p=0"
    ),
    "an attention layer": (multi_head, "dropout_p=0"),
    "lstm": (recurrent("lstm", 4), "dropout=0"),
    "packed lstm": (recurrent("lstm", 4, packed=True), "dropout=0"),
    "gru": (recurrent("gru", 3), "dropout=0"),
    "rnn of relu": (recurrent("rnn_relu", 1), "dropout=0"),
    "dropout": (lambda recorder: recorder.Functional.dropout(x(30, 40), 0.5, True), "p=0"),
    "dropout of channels": (lambda recorder: recorder.Functional.dropout2d(x(3, 4, 5, 6), 0.5, True), "p=0"),
    "alpha dropout": (lambda recorder: recorder.Functional.alpha_dropout(x(30, 40), 0.5, True), "p=0"),
    "ATen's dropout": (lambda recorder: recorder.Torch.native_dropout(x(30, 40), 0.5, True), "p=0"),
    "rrelu": (lambda recorder: recorder.Functional.rrelu(x(30, 40), 0.2, 0.3, True), "upper=0.2"),
    "rrelu by name": (lambda recorder: recorder.Functional.rrelu(x(30, 40), upper=0.5, training=True), "upper=0.125"),
}  # fmt: skip


@pytest.mark.parametrize("make", [make for make, _ in CALLS.values()], ids=CALLS.keys())
def test_a_call_with_dropout_is_judged_whole_in_both_directions(make: Any, recorder: Any, check: Any) -> None:
    assert_judged_whole(check(make(recorder)))


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("make", "off"), CALLS.values(), ids=CALLS.keys())
def test_what_random_properties_cannot_see_fails_and_the_reason_says_in_which_run(
    make: Any, off: str, direction: str, recorder: Any, check: Any
) -> None:
    assert_wrong_at_rest(getattr(check(make(recorder), device=OffAtRest(direction)), direction), off)


def attention(recorder: Any) -> Any:
    return recorder.Functional.scaled_dot_product_attention(*heads(), None, 0.3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, v, mask, p: SDPA(q, k, v, mask, p, scale=1.0),
        lambda q, k, v, mask, p: SDPA(q, k, v, mask, p, is_causal=True),
        lambda q, k, v, mask, p: SDPA(q.bfloat16().float(), k, v, mask, p),
    ],
    ids=["scale", "mask", "operands in bfloat16"],
)
def test_wrong_attention_fails_though_dropout_is_inside(
    wrong: Any, recorder: Any, check: Any, device_that: Any
) -> None:
    assert (
        check(attention(recorder), device=device_that(lambda _, args, kwargs: wrong(*args))).forward.outcome == "fail"
    )


def test_random_results_are_judged_by_their_properties_all_the_same(
    recorder: Any, check: Any, device_that: Any
) -> None:
    device = device_that(lambda func, args, kwargs: args[0] * (1 if args[1] else 1.0))
    result = check(recorder.Functional.dropout(x(30, 40), 0.5, True), device=device).forward
    assert [(output.path, output.verdict.outcome) for output in result.outputs] == [
        ("output", "fail"),
        ("not_random.output.0", "pass"),
    ]
    assert "with p=0" not in result.reason


def test_a_device_that_raises_without_dropout_fails(recorder: Any, check: Any, device_that: Any) -> None:
    def refuse(func: Any, args: Any, kwargs: Any) -> Any:
        if not args[4]:
            raise RuntimeError("no such tiling")
        return func(*args, **kwargs)

    result = check(attention(recorder), device=device_that(refuse))
    assert result.forward.outcome == "fail"
    assert "with dropout_p=0: " in result.forward.reason
    assert "no such tiling" in result.forward.reason


def test_where_the_second_run_cannot_be_made_the_first_is_reported_with_how_little_it_says(
    recorder: Any, default_policy: Policy
) -> None:
    def only_random(query: Any, key: Any, value: Any, mask: Any, p: float) -> Any:
        if not p:
            raise RuntimeError("dropout_p must not be zero")
        return SDPA(query, key, value, mask, p)

    replay = Replay(
        attention(recorder), ReplayConfig(CpuDevice(), default_policy, TorchFramework()), function=only_random
    )
    result = replay.forward()
    assert result.outcome == "pass"
    assert "dropout inside" in result.extras[LITTLE_JUDGED]
    assert "dropout_p must not be zero" in replay.backward().verdict.reason


def test_a_call_that_is_not_random_runs_once(recorder: Any, check: Any, device_that: Any) -> None:
    runs: list[Any] = []

    def counted(func: Any, args: Any, kwargs: Any) -> Any:
        runs.append(func)
        return func(*args, **kwargs)

    # With dropout: as recorded, without dropout, once for what shows the gradient of the mask, and for what shows the
    # mask as often as makes 8 192 elements, of (2, 4, 12, 16) each.
    for p, expected in ((0.0, 1), (0.3, 3 + math.ceil(8192 / 1536))):
        runs.clear()
        call = recorder.Functional.scaled_dot_product_attention(*heads(), None, p)
        assert check(call, device=device_that(counted)).forward.outcome == "pass"
        assert len(runs) == expected


def test_both_runs_are_kept_with_a_failing_case(recorder: Any, default_policy: Policy) -> None:
    wrong = Altered(lambda func, args, kwargs: func(*args, **kwargs) * 1.01)
    replay = Replay(attention(recorder), ReplayConfig(wrong, default_policy, TorchFramework()))
    assert replay.forward().outcome == "fail"
    trees = produced(replay.trial, "forward")
    assert set(trees["target"]) == {"output", "not_random"}
    expected = SDPA(*(tensor.double() for _, tensor in replay.trial.subject.arguments.tensors()))
    torch.testing.assert_close(trees["golden"]["not_random"]["output"][0], expected)


def test_a_recorded_baseline_is_asked_for_the_second_run_by_its_own_paths(
    recorder: Any, default_policy: Policy
) -> None:
    asked: list[str] = []

    class Rows:
        problem = ""

        def for_outputs(self, targets: Any, goldens: Any, prepare: Prepare) -> Any:
            asked.extend([*targets, *goldens])
            return self

        def __call__(self, path: str, standard: Any) -> None:
            asked.append(path)

        def without_missing(self, result: OutputResult) -> OutputResult:
            asked.append(result.path)
            return result

    wrong = Altered(lambda func, args, kwargs: func(*args, **kwargs) * 1.01)
    replay = Replay(
        attention(recorder), ReplayConfig(wrong, default_policy, TorchFramework()), recorded=lambda record: Rows()
    )
    assert [output.path for output in replay.forward().outputs] == ["output", "dropout_mask", "not_random.output.0"]
    assert asked == ["not_random.output.0"] * 4
