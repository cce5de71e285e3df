"""Recorded attention that is screened before golden runs, or left to the exact check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe_standards import Policy, standard
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials import trial, zero_copy_inputs
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.screening.options import screened_of
from tests.support.dumps.recorder import Recorder
from tests.support.replays.devices import Altered, Faulty
from tests.support.replays.screening import (
    assert_cleared_without_golden_run,
    directions_cleared,
    ran_exactly,
    replayed,
)

L, D = 256, 32


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


def attention(of: Any, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    shapes = shapes or ((1, 8, L, D),)
    operands = [x(*shapes[min(i, len(shapes) - 1)], dtype=dtype) for i in range(3)]
    return of.Functional.scaled_dot_product_attention(*operands, **options)


def mask(*shape: int) -> torch.Tensor:
    hidden = torch.rand(*shape) > 0.5
    hidden[..., 0] = True
    return hidden


CALLS: dict[str, Callable[[Any, torch.dtype], Any]] = {
    "causal": lambda of, dtype: attention(of, dtype=dtype, is_causal=True),
    "all keys": lambda of, dtype: attention(of, dtype=dtype),
    "three dimensions": lambda of, dtype: attention(of, (8, L, D), dtype=dtype, scale=0.3),
    "other lengths": lambda of, dtype: attention(of, (2, 4, L, D), (2, 4, 300, D), dtype=dtype),
    "causal over fewer keys": lambda of, dtype: attention(
        of, (1, 8, 400, D), (1, 8, L, D), dtype=dtype, is_causal=True
    ),
    "shared keys": lambda of, dtype: attention(
        of, (1, 16, L, D), (1, 8, L, D), dtype=dtype, is_causal=True, enable_gqa=True
    ),
    "a mask of bools": lambda of, dtype: attention(of, (8, 1, L, D), dtype=dtype, attn_mask=mask(8, 1, 1, L)),
    "an added mask": lambda of, dtype: attention(of, dtype=dtype, attn_mask=torch.randn(L, L).to(dtype)),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.bfloat16) for name in CALLS] + [(name, torch.float32) for name in ("causal", "shared keys")],
)
def test_right_attention_is_cleared_in_both_directions_without_a_golden_run(
    recorder: Any, default_policy: Policy, name: str, dtype: torch.dtype
) -> None:
    assert_cleared_without_golden_run(CALLS[name](recorder, dtype), default_policy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_large_attention_are_cleared_without_its_forward_record(
    recorder: Any, default_policy: Policy, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    for module in (zero_copy_inputs, trial):
        monkeypatch.setattr(module, "LARGE", 1)
    replay = replayed(CALLS["causal"](recorder, dtype), default_policy)
    result = replay.backward()
    assert result.outcome == "pass"
    assert [each.path for each in screened_of(result.extras)] == ["grad.args.0", "grad.args.1", "grad.args.2"]
    assert not ran_exactly(replay)


def without_mask(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **{**kwargs, "is_causal": False, "attn_mask": None})


def sees_the_next(func: Any, args: Any, kwargs: Any) -> Any:
    seen = torch.ones(args[0].shape[-2], args[1].shape[-2]).tril(1).bool()
    return func(*args, **{**kwargs, "is_causal": False, "attn_mask": seen})


def without_scale(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs, scale=1.0)


def scale_of_another_width(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs, scale=(D + 1) ** -0.5)


def keys_handed_out_in_turn(func: Any, args: Any, kwargs: Any) -> Any:
    query, *others = args
    repeats = query.shape[1] // others[0].shape[1]
    return func(query, *(each.repeat(1, repeats, 1, 1) for each in others), is_causal=True)


def last_key_unseen(func: Any, args: Any, kwargs: Any) -> Any:
    query, key, value = args
    return func(query, key[..., :-1, :], value[..., :-1, :], **kwargs)


WRONG: dict[str, tuple[str, torch.dtype, Callable[[Any, Any, Any], Any]]] = {
    "a missing causal mask": ("causal", torch.float32, without_mask),
    "a causal mask off by one": ("causal", torch.bfloat16, sees_the_next),
    "a missing mask": ("a mask of bools", torch.bfloat16, without_mask),
    "a missing scale": ("causal", torch.bfloat16, without_scale),
    "another scale": ("all keys", torch.float32, scale_of_another_width),
    "keys handed out in turn": ("shared keys", torch.bfloat16, keys_handed_out_in_turn),
    "a key left out": ("all keys", torch.float32, last_key_unseen),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_attention_gets_the_verdict_of_the_exact_check(recorder: Any, default_policy: Policy, what: str) -> None:
    name, dtype, wrong = WRONG[what]
    call = CALLS[name](recorder, dtype)
    screened, exact = (replayed(call, default_policy, Altered(wrong), screen_above=above) for above in (0, None))
    for direction in ("forward", "backward"):
        found, expected = screened.judge(direction), exact.judge(direction)
        assert (found.outcome, found.verdict) == ("fail", expected.verdict)
        assert not screened_of(found.extras)


Change = Callable[[torch.Tensor], torch.Tensor]


def at(part: Callable[[torch.Tensor], torch.Tensor], change: Change) -> Change:
    def changed(result: torch.Tensor) -> torch.Tensor:
        of = part(result)
        of.copy_(change(of.clone()))
        return result

    return changed


def swapped(first: int, second: int, dim: int) -> Change:
    def swap(result: torch.Tensor) -> torch.Tensor:
        order = list(range(result.shape[dim]))
        order[first], order[second] = second, first
        return result.index_select(dim, torch.tensor(order))

    return swap


heads, rows, tiles = st.integers(0, 7), st.integers(8, 127), st.integers(0, 1)
factors = st.sampled_from([0.0, 0.5, 0.97, 1.04, -1.0, 2.0])
CHANGES = st.one_of(
    st.builds(lambda head, row, by: at(lambda t: t[0, head, row], lambda v: v * by), heads, rows, st.just(0.0)),
    st.builds(lambda head, by: at(lambda t: t[0, head], lambda v: v * by), heads, factors),
    st.builds(
        lambda head, tile, by: at(lambda t: t[0, head, :128, 16 * tile : 16 * tile + 16], lambda v: v * by),
        heads,
        tiles,
        factors,
    ),
    st.builds(
        lambda head, column, by: at(lambda t: t[0, head, :, column % t.shape[-1]], lambda v: v * by),
        heads,
        rows,
        st.sampled_from([0.0, -1.0, 2.0]),
    ),
    st.builds(lambda by: lambda result: result * by, factors.filter(bool)),
    st.builds(
        lambda head, first, by: at(lambda t: t[0, head], swapped(first, first + by, 0)), heads, rows, st.integers(1, 8)
    ),
    st.builds(
        lambda head, first: at(lambda t: t[0, head], swapped(first % 31, first % 31 + 1, 1)), heads, st.integers(0, 30)
    ),
    st.builds(lambda first, by: swapped(first, (first + by) % 8, 1), heads, st.integers(1, 7)),
    st.builds(lambda head: at(lambda t: t[0, head], lambda v: v.mT.reshape(v.shape)), heads),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES, st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 2**16))
def test_a_changed_row_column_head_tile_scale_or_order_is_never_cleared(
    default_policy: Policy, change: Change, dtype: torch.dtype, seed: int
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        call = CALLS["causal"](Recorder(), dtype)
    assert directions_cleared(replayed(call, default_policy, Faulty(change), seed=seed)) == []


def without_slice(dim: int, start: int) -> Callable[[Any, Any, Any], Any]:
    """Leave eight keys out (-2), or eight features of queries and keys (-1)."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        first = start % (tensor.shape[dim] - 8)
        return torch.cat(
            (tensor.narrow(dim, 0, first), tensor.narrow(dim, first + 8, tensor.shape[dim] - first - 8)), dim
        )

    def wrong(func: Any, args: Any, kwargs: Any) -> Any:
        query, key, value = args
        query, value = (cut(query), value) if dim == -1 else (query, cut(value))
        return func(query, cut(key), value, scale=D**-0.5)

    return wrong


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([-1, -2]),
    st.integers(0, L),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.integers(0, 2**16),
)
def test_attention_without_a_slice_of_its_keys_or_features_is_never_cleared(
    default_policy: Policy, dim: int, start: int, dtype: torch.dtype, seed: int
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        call = CALLS["all keys"](Recorder(), dtype)
    assert directions_cleared(replayed(call, default_policy, Altered(without_slice(dim, start)), seed=seed)) == []


def test_what_does_not_change_a_result_is_cleared(recorder: Any, default_policy: Policy) -> None:
    call = CALLS["causal"](recorder, torch.bfloat16)
    assert directions_cleared(replayed(call, default_policy)) == ["forward", "backward"]


@pytest.mark.parametrize("options", [{"screen_above": 10**12}, {"measure_all": True}, {"screen_above": None}])
def test_small_attention_and_runs_that_want_every_number_are_exact(
    recorder: Any, default_policy: Policy, options: dict[str, Any]
) -> None:
    replay = replayed(CALLS["causal"](recorder, torch.float32), default_policy, **options)
    assert replay.forward().outcome == "pass"
    assert ran_exactly(replay)


def test_what_another_standard_judges_is_exact(recorder: Any) -> None:
    replay = replayed(CALLS["causal"](recorder, torch.float32), Policy.of(standard("thousandth", min_share=0.5)))
    assert replay.forward().outcome == "pass"
    assert ran_exactly(replay)


def test_sixteen_bits_without_gradients_are_computed_again_as_fast_as_they_are_screened(
    recorder: Any, default_policy: Policy
) -> None:
    for dtype, is_exact in ((torch.bfloat16, True), (torch.float32, False)):
        operands = [x(1, 8, L, D, dtype=dtype).detach() for _ in range(3)]
        replay = replayed(recorder.Functional.scaled_dot_product_attention(*operands), default_policy)
        assert replay.forward().outcome == "pass"
        assert ran_exactly(replay) == is_exact


def test_a_gradient_of_the_mask_is_exact(recorder: Any, default_policy: Policy) -> None:
    replay = replayed(attention(recorder, attn_mask=x(L, L)), default_policy)
    assert replay.backward().outcome == "pass"
    assert ran_exactly(replay)


def test_rows_that_see_no_key_are_exact(recorder: Any, default_policy: Policy) -> None:
    operands = [torch.randn(1, 8, L, D) for _ in range(3)]
    seen = mask(L, L)
    seen[7] = False
    call = recorder.Functional.scaled_dot_product_attention(*operands, seen)
    given = dict(zip(("args.0", "args.1", "args.2", "args.3"), (*operands, seen), strict=True))
    setup = ReplayConfig(CpuDevice(), default_policy, TorchFramework(), screen_above=0)
    replay = Replay(call, setup, source=lambda element, path: given[path])
    assert replay.forward().outcome == "pass"
    assert ran_exactly(replay)


def test_nan_and_inf_among_the_operands_are_exact(recorder: Any, default_policy: Policy) -> None:
    for wrong in (float("nan"), float("inf")):
        operands = [x(1, 8, L, D) for _ in range(3)]
        with torch.no_grad():
            operands[1][0, 5, 9, 3] = wrong
        replay = replayed(recorder.Functional.scaled_dot_product_attention(*operands, is_causal=True), default_policy)
        replay.forward()
        assert ran_exactly(replay)


def test_nan_in_one_head_alone_fails(recorder: Any, default_policy: Policy) -> None:
    change = at(lambda t: t[0, 3, 100, :1], lambda v: v * float("nan"))
    replay = replayed(CALLS["causal"](recorder, torch.bfloat16), default_policy, Faulty(change))
    assert [replay.forward().outcome, replay.backward().outcome] == ["fail", "fail"]


def test_the_same_heads_and_signs_are_taken_in_every_process(recorder: Any, default_policy: Policy) -> None:
    call = CALLS["causal"](recorder, torch.bfloat16)
    alone, after = replayed(call, default_policy), replayed(call, default_policy)
    after.forward()
    assert screened_of(alone.backward().extras) == screened_of(after.backward().extras)


def test_attention_step_by_step_is_cleared(recorder: Any, default_policy: Policy) -> None:
    def by_steps(func: Any, args: Any, kwargs: Any) -> Any:
        query, key, value = (each.float() for each in args)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
        return (F.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ value).to(args[0].dtype)

    for dtype in (torch.float32, torch.bfloat16):
        replay = replayed(CALLS["causal"](recorder, dtype), default_policy, Altered(by_steps))
        assert all(screened_of(each.extras) for each in (replay.forward(), replay.backward()))
