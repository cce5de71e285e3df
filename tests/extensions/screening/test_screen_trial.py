"""Recorded products that are screened before golden runs, or left to the exact check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from msprobe_standards import Policy, standard
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.trials import trial
from pytest_msprobe.extensions.screening import screen_trial
from pytest_msprobe.extensions.screening.config import SCREENED_DTYPES
from pytest_msprobe.extensions.screening.options import screened_of
from tests.support.dumps.recorder import Recorder
from tests.support.replays.devices import Altered, Faulty
from tests.support.replays.screening import (
    assert_cleared_without_golden_run,
    directions_cleared,
    ran_exactly,
    replayed,
)

M, K, N = 272, 144, 260


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


CALLS: dict[str, Callable[[Any, torch.dtype], Any]] = {
    "linear": lambda of, dtype: of.Functional.linear(x(2, M, K, dtype=dtype), x(N, K, dtype=dtype), x(N, dtype=dtype)),
    "linear by keywords": lambda of, dtype: of.Functional.linear(x(M, K, dtype=dtype), weight=x(N, K, dtype=dtype)),
    "matmul": lambda of, dtype: of.Torch.matmul(x(2, M, K, dtype=dtype), x(2, K, N, dtype=dtype)),
    "matmul with one matrix": lambda of, dtype: of.Torch.matmul(x(3, M, K, dtype=dtype), x(K, N, dtype=dtype)),
    "@": lambda of, dtype: of.Tensor.__matmul__(x(M, K, dtype=dtype), x(K, N, dtype=dtype)),
    "@ from the right": lambda of, dtype: of.Tensor.__rmatmul__(x(K, N, dtype=dtype), x(M, K, dtype=dtype)),
    "einsum": lambda of, dtype: of.Torch.einsum(
        "bmhk,bnhk->bhmn", x(1, M, 2, K, dtype=dtype), x(1, N, 2, K, dtype=dtype)
    ),
    "einsum without a batch": lambda of, dtype: of.Torch.einsum(
        "kqm,nk", x(K, 2, M, dtype=dtype), x(N, K, dtype=dtype)
    ),
    "a pointwise convolution": lambda of, dtype: of.Functional.conv1d(
        x(2, K, 140, dtype=dtype), x(N, K, 1, dtype=dtype), x(N, dtype=dtype)
    ),
    "an embedding of patches": lambda of, dtype: of.Functional.conv2d(
        x(2, 3, 98, 77, dtype=dtype), x(N, 3, 7, 7, dtype=dtype), x(N, dtype=dtype), stride=(7, 7)
    ),
    "mm": lambda of, dtype: of.Torch.mm(x(M, K, dtype=dtype), x(K, N, dtype=dtype)),
    "bmm": lambda of, dtype: of.Torch.bmm(x(2, M, K, dtype=dtype), x(2, K, N, dtype=dtype)),
    "addmm": lambda of, dtype: of.Torch.addmm(
        x(N, dtype=dtype), x(M, K, dtype=dtype), x(K, N, dtype=dtype), beta=0.5, alpha=-3
    ),
    "baddbmm": lambda of, dtype: of.Torch.baddbmm(
        x(2, M, N, dtype=dtype).detach(), x(2, M, K, dtype=dtype), x(2, K, N, dtype=dtype)
    ),
}


# In 16 bits the CPU rounds a scaled product before it adds, so that the baseline has to tell.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.float32) for name in CALLS] + [(name, torch.bfloat16) for name in CALLS if name != "addmm"],
)
def test_a_right_product_is_cleared_in_both_directions_without_a_golden_run(
    recorder: Any, default_policy: Policy, name: str, dtype: torch.dtype
) -> None:
    assert_cleared_without_golden_run(CALLS[name](recorder, dtype), default_policy)


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_product_gets_the_verdict_of_the_exact_check(recorder: Any, default_policy: Policy, name: str) -> None:
    def wrong(result: torch.Tensor) -> torch.Tensor:
        result[..., -1] *= 1.01
        return result

    call = CALLS[name](recorder, torch.float32)
    screened, exact = (replayed(call, default_policy, Faulty(wrong), screen_above=above) for above in (0, None))
    for direction in ("forward", "backward"):
        found, expected = screened.judge(direction), exact.judge(direction)
        assert (found.outcome, found.verdict) == ("fail", expected.verdict)
        assert not screened_of(found.extras)


LEFT_ALONE: dict[str, Callable[[Any], Any]] = {
    "integers": lambda of: of.Torch.mm(torch.ones(M, K, dtype=torch.int32), torch.ones(K, N, dtype=torch.int32)),
    "float64": lambda of: of.Torch.mm(torch.randn(M, K).double(), torch.randn(K, N).double()),
    "complex": lambda of: of.Torch.mm(torch.randn(M, K).cfloat(), torch.randn(K, N).cfloat()),
    "one column": lambda of: of.Torch.mm(torch.randn(M, K), torch.randn(K, 1)),
    "no rows": lambda of: of.Torch.mm(torch.randn(0, K), torch.randn(K, N)),
    "a vector": lambda of: of.Torch.matmul(torch.randn(M, K), torch.randn(K)),
    "a broadcast batch": lambda of: of.Torch.matmul(torch.randn(2, M, K), torch.randn(1, K, N)),
    "an output of its own": lambda of: of.Torch.mm(torch.randn(M, K), torch.randn(K, N), out=torch.empty(M, N)),
    "a sum besides": lambda of: of.Torch.einsum("mks,kn->mn", torch.randn(M, K, 2), torch.randn(K, N)),
    "three factors": lambda of: of.Torch.einsum("mk,kn,n->mn", torch.randn(M, K), torch.randn(K, N), torch.randn(N)),
    "a convolution of few channels": lambda of: of.Functional.conv1d(torch.randn(2, 64, M), torch.randn(N, 64, 2)),
    "a convolution in groups of few channels": lambda of: of.Functional.conv1d(
        torch.randn(2, K, M), torch.randn(N, K // 2, 1), groups=2
    ),
    "an einsum of numbered dimensions": lambda of: of.Torch.einsum(
        torch.randn(M, K), [0, 1], torch.randn(K, N), [1, 2]
    ),
    "no product": lambda of: of.Torch.add(torch.randn(M, N), torch.randn(M, N)),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_calls_are_checked_exactly(recorder: Any, default_policy: Policy, what: str) -> None:
    replay = replayed(LEFT_ALONE[what](recorder), default_policy)
    result = replay.forward()
    assert result.outcome == "pass"
    assert ran_exactly(replay)
    assert not screened_of(result.extras)


def test_nan_and_inf_among_the_operands_are_left_to_the_exact_check(recorder: Any, default_policy: Policy) -> None:
    left = torch.randn(M, K)
    left[3, 4], left[200, 1] = float("nan"), float("inf")
    replay = replayed(recorder.Torch.mm(left, torch.randn(K, N)), default_policy)
    assert replay.forward().outcome == "pass"
    assert ran_exactly(replay)


def test_inputs_that_do_not_fit_each_other_do_not_reach_the_device(recorder: Any, default_policy: Policy) -> None:
    class Untouched(SimDevice):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            raise AssertionError(record)

    call = recorder.Torch.mm(torch.randn(M, K), torch.randn(K, N))
    shorter = structs.replace(call.forward.args[1], shape=(K - 1, N))
    call = replace(call, forward=structs.replace(call.forward, args=[call.forward.args[0], shorter]))
    assert replayed(call, default_policy, Untouched()).forward().skip is not None


def test_a_device_that_raises_or_answers_in_another_shape_is_reported_as_ever(
    recorder: Any, default_policy: Policy
) -> None:
    def raises(func: Any, args: Any, kwargs: Any) -> Any:
        raise ValueError("no")

    def cut(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)[1:]

    call = recorder.Torch.mm(torch.randn(M, K), torch.randn(K, N))
    for alter, word in ((raises, "raises on the device"), (cut, "shape is (271, 260)")):
        result = replayed(call, default_policy, Altered(alter)).forward()
        assert result.outcome in ("fail", "run")
        assert word in result.verdict.reason


class Backward(SimDevice):
    """A device that alters what its gradients give, once they are computed."""

    def __init__(self, alter: Callable[[Any], Any]) -> None:
        self._alter = alter

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        found = super().call(func, args, kwargs, record=record)
        return self._alter(found) if record.endswith("backward") else found


@pytest.mark.parametrize(
    ("error", "outcome"), [(ValueError("broken"), "fail"), (NotImplementedError("no kernel"), "skip")], ids=repr
)
def test_a_gradient_that_fails_on_the_device_is_reported_by_its_own_error(
    recorder: Any, default_policy: Policy, error: Exception, outcome: str
) -> None:
    def raises(found: Any) -> Any:
        raise error

    result = replayed(CALLS["linear"](recorder, torch.float32), default_policy, Backward(raises)).backward()
    assert result.outcome == outcome
    assert str(error) in result.verdict.reason


def test_gradients_of_an_answer_in_another_form_get_the_verdict_of_the_exact_check(
    recorder: Any, default_policy: Policy
) -> None:
    call = CALLS["linear"](recorder, torch.float32)
    device = Altered(lambda func, args, kwargs: [func(*args, **kwargs)])
    found, expected = (replayed(call, default_policy, device, screen_above=above).backward() for above in (0, None))
    assert not screened_of(found.extras)
    assert (found.outcome, found.verdict.reason) == (expected.outcome, expected.verdict.reason)


@pytest.mark.parametrize("options", [{"screen_above": 2 * M * K * N}, {"measure_all": True}, {"screen_above": None}])
def test_small_products_and_runs_that_want_every_number_are_exact(
    recorder: Any, default_policy: Policy, options: dict[str, Any]
) -> None:
    replay = replayed(CALLS["mm"](recorder, torch.float32), default_policy, **options)
    assert replay.forward().outcome == "pass"
    assert ran_exactly(replay)


def test_what_another_standard_judges_is_exact(recorder: Any) -> None:
    replay = replayed(CALLS["mm"](recorder, torch.float32), Policy.of(standard("thousandth", min_share=0.5)))
    assert replay.forward().outcome == "pass"
    assert ran_exactly(replay)


def test_an_output_of_another_dtype_than_recorded_is_exact(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Torch.mm(torch.randn(M, K), torch.randn(K, N))
    recorded = structs.replace(call.forward.output[0], dtype="torch.bfloat16")
    call = replace(call, forward=structs.replace(call.forward, output=[recorded]))
    replay = replayed(call, default_policy)
    replay.forward()
    assert ran_exactly(replay)


Change = Callable[[torch.Tensor], torch.Tensor]


def of_matrices(change: Change) -> Change:
    """Leave what has one dimension as it is: the gradient of a bias."""
    return lambda result: change(result) if result.dim() > 1 else result


def multiplied(dim: int, at: int, by: float) -> Change:
    """Multiply one row, or one column, of each matrix."""

    def change(result: torch.Tensor) -> torch.Tensor:
        result.movedim(dim, 0)[at % result.shape[dim]] *= by
        return result

    return of_matrices(change)


def multiplied_tile(by: float) -> Change:
    def change(result: torch.Tensor) -> torch.Tensor:
        result[..., -128:, :128] *= by
        return result

    return of_matrices(change)


def swapped(dim: int, at: int, by: int) -> Change:
    """Swap two rows, or two columns, of each matrix."""

    def change(result: torch.Tensor) -> torch.Tensor:
        order = torch.arange(size := result.shape[dim])
        first, second = at % size, (at + 1 + by % (size - 1)) % size
        order[first], order[second] = second, first
        return result.index_select(dim, order)

    return of_matrices(change)


def scaled(roundings: int) -> Change:
    return of_matrices(lambda result: result * (1 + roundings * torch.finfo(result.dtype).eps))


DIMS, PLACES = st.sampled_from([-2, -1]), st.integers(0, 400)
CHANGES = st.one_of(
    st.builds(multiplied, DIMS, PLACES, st.sampled_from([0.0, -1.0, 2.0])),
    st.builds(multiplied_tile, st.sampled_from([0.0, 0.5, 0.97, 1.04, -1.0])),
    st.builds(swapped, DIMS, PLACES, PLACES),
    st.builds(scaled, st.integers(64, 2**20)),
    st.just(of_matrices(lambda result: result.mT.reshape(result.shape))),
)
_DEFAULT = Policy.load("default")
OF_MATRICES = [name for name in CALLS if not name.endswith(("convolution", "patches"))]


@settings(max_examples=40)
@given(st.sampled_from(OF_MATRICES), st.sampled_from(SCREENED_DTYPES), CHANGES, st.integers(0, 2**16))
def test_neither_a_changed_result_nor_changed_gradients_are_ever_cleared(
    name: str, dtype: torch.dtype, change: Change, seed: int
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        call = CALLS[name](Recorder(), dtype)
    assert directions_cleared(replayed(call, _DEFAULT, Faulty(change), seed=seed)) == []


LARGER: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "the right one": ("args.1", lambda of: of.Functional.linear(x(M, K), x(2 * N, K))),
    "the left one": ("args.0", lambda of: of.Torch.matmul(x(2 * M, K), x(K, N))),
}


@pytest.fixture
def all_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_LET_GO_BYTES", 1)


@pytest.mark.usefixtures("all_let_go")
@pytest.mark.parametrize("which", LARGER)
def test_the_larger_factor_is_let_go_of_before_its_own_gradient_is_screened(
    recorder: Any, default_policy: Policy, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    path, call = LARGER[which]
    replay = replayed(call(recorder), default_policy)
    factor = dict(replay.trial.subject.arguments.tensors())[path]
    held: dict[str, bool] = {}

    def screened(of: Any, at: str, *rest: Any) -> Any:
        held[at] = not factor.isnan().all()
        return as_ever(of, at, *rest)

    as_ever = screen_trial._screened
    monkeypatch.setattr(screen_trial, "_screened", screened)
    assert replay.backward().outcome == "pass"
    other = "grad.args.0" if path == "args.1" else "grad.args.1"
    assert held == {other: True, f"grad.{path}": False}
    assert factor.untyped_storage().nbytes() == factor.itemsize


@pytest.mark.usefixtures("all_let_go")
def test_a_replay_of_which_an_input_was_let_go_of_checks_again_as_a_new_one_does(
    recorder: Any, default_policy: Policy
) -> None:
    replay = replayed(LARGER["the right one"][1](recorder), default_policy)
    first = [replay.forward(), replay.backward()]
    again = [replay.forward(), replay.backward()]
    assert [each.outputs for each in again] == [each.outputs for each in first]


@pytest.mark.usefixtures("all_let_go")
def test_a_gradient_that_is_not_cleared_is_held_against_the_inputs_that_were_let_go_of(
    recorder: Any, default_policy: Policy
) -> None:
    call = LARGER["the right one"][1](recorder)

    def wrong(result: torch.Tensor) -> torch.Tensor:
        return result * 1.01 if result.shape == (2 * N, K) else result

    screened, exact = (
        replayed(call, default_policy, Faulty(wrong), screen_above=above).backward() for above in (0, None)
    )
    assert screened.outcome == "fail"
    assert screened.outputs == exact.outputs
