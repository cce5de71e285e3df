"""Running sums and products: devices that round each step or scan in blocks are right, at every length."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pytest_msprobe.engine.replay.ops.running_results import Running
from tests.support.dumps.recorded_calls import recorded_call

Floats = NDArray[np.float32]
Scan = Callable[[np.ufunc, Floats], Floats]
LENGTHS = [1, 2, 512, 8192, 65536, 200_000]


def each_step(op: np.ufunc, x: Floats) -> Floats:
    """Round every step."""
    return op.accumulate(x, axis=-1)  # type: ignore[no-any-return]


def in_blocks(op: np.ufunc, x: Floats, block: int = 512) -> Floats:
    """Scan blocks, then what they come to, and put both together."""
    lines, length = x.shape
    filled = np.full((lines, -(-length // block) * block), op.identity, x.dtype)
    filled[:, :length] = x
    within = op.accumulate(filled.reshape(lines, -1, block), axis=-1)
    carried = op.accumulate(within[:, :-1, -1], axis=-1)
    within[:, 1:] = op(within[:, 1:], carried[..., None])
    return within.reshape(lines, -1)[:, :length]


def in_a_tree(op: np.ufunc, x: Floats) -> Floats:
    """Scan pairs, and put their first members in between (Blelloch, 1990)."""
    length = x.shape[-1]
    if length == 1:
        return x
    pairs = in_a_tree(op, op(x[:, : length // 2 * 2 : 2], x[:, 1 : length // 2 * 2 : 2]))
    found = x.copy()
    found[:, 1 : length // 2 * 2 : 2] = pairs
    found[:, 2::2] = op(pairs[:, : (length - 1) // 2], x[:, 2::2])
    return found


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def uniform(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


SCANS: list[Scan] = [each_step, in_blocks, in_a_tree]
TERMS: dict[str, Callable[[int], Tensor]] = {
    "normal": lambda n: normal(2, n),
    "equal": lambda n: torch.full((2, n), 0.1),
    "shares": lambda n: torch.softmax(4 * normal(2, n), -1),
    "there and back": lambda n: torch.cat([torch.full((2, n - n // 2), 1.3), torch.full((2, n // 2), -1.3)], 1),
}
FACTORS: dict[str, Callable[[int], Tensor]] = {
    "around 1": lambda n: 1 + 1e-3 * normal(2, n),
    "above 1": lambda n: 1 + 1e-6 * uniform(2, n),
    "to nothing": lambda n: 0.5 + 0.4 * uniform(2, n),
}


def scanned(scan: Scan, op: np.ufunc, x: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(scan(op, x.numpy())))


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_running_sum_in_float32_is_explained_at_every_length(length: int, name: str, scan: Scan) -> None:
    x = TERMS[name](length)
    steps = Running().forward((x, 1), {})
    assert steps is not None
    assert steps.are_rounded(scanned(scan, np.add, x), x.double().cumsum(1))


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_running_product_in_float32_is_explained_at_every_length(length: int, name: str, scan: Scan) -> None:
    x = FACTORS[name](length)
    steps = Running(product=True).forward((x,), {"dim": -1})
    assert steps is not None
    assert steps.are_rounded(scanned(scan, np.multiply, x), x.double().cumprod(1))


def dropped(op: np.ufunc, x: Floats) -> Floats:
    """Leave out an element in the middle."""
    without = x.copy()
    without[:, x.shape[1] // 2] = op.identity
    return each_step(op, without)


def dropped_at_last(op: np.ufunc, x: Floats) -> Floats:
    """Leave out the last element."""
    without = x.copy()
    without[:, -1] = op.identity
    return each_step(op, without)


def without_carry(op: np.ufunc, x: Floats) -> Floats:
    """Begin anew in one block."""
    found, at = each_step(op, x), x.shape[1] // 1024 * 512
    found[:, at : at + 512] = each_step(op, x[:, at : at + 512])
    return found


def with_stale_carry(op: np.ufunc, x: Floats) -> Floats:
    """Add to one block what came before the block in front of it."""
    found, at = each_step(op, x), x.shape[1] // 1024 * 512
    found[:, at : at + 512] = op(each_step(op, x[:, at : at + 512]), found[:, at - 513 : at - 512])
    return found


def other_dimension(op: np.ufunc, x: Floats) -> Floats:
    return op.accumulate(x, axis=0)  # type: ignore[no-any-return]


def one_behind(op: np.ufunc, x: Floats) -> Floats:
    """Leave out each element's own."""
    return np.concatenate([np.full_like(x[:, :1], op.identity), each_step(op, x)[:, :-1]], 1)


def of_bfloat16(op: np.ufunc, x: Floats) -> Floats:
    return each_step(op, torch.from_numpy(x).bfloat16().float().numpy())


def scaled(op: np.ufunc, x: Floats) -> Floats:
    return each_step(op, x) * np.float32(1 + 1e-5)


def of_20_bits(op: np.ufunc, x: Floats) -> Floats:
    """Keep 20 bits of what was added up so far."""
    found, kept = np.empty_like(x), np.full_like(x[:, 0], op.identity)
    for i in range(x.shape[1]):
        kept = (op(kept, x[:, i]).view(np.int32) & ~0xF).view(np.float32)
        found[:, i] = kept
    return found


FAULTS: list[Scan] = [
    dropped, dropped_at_last, without_carry, with_stale_carry, other_dimension, one_behind, of_bfloat16, scaled,
    of_20_bits,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("op", "name"), [*itertools.product([np.add], ["normal", "equal"]), (np.multiply, "around 1")])
@pytest.mark.parametrize("length", [4096, 20_000])
def test_a_fault_in_one_step_is_not_explained(length: int, op: np.ufunc, name: str, fault: Scan) -> None:
    x = (TERMS | FACTORS)[name](length)
    running = Running(product=op is np.multiply)
    steps = running.forward((x, 1), {})
    assert steps is not None
    golden = x.double().cumprod(1) if running.product else x.double().cumsum(1)
    assert not steps.are_rounded(scanned(fault, op, x), golden)


def test_an_element_that_is_nan_or_infinite_on_one_side_alone_is_not_explained() -> None:
    golden = torch.ones(2, 9, dtype=torch.float64).cumsum(1)
    steps = Running().forward((golden, 1), {})
    assert steps is not None
    for wrong in (torch.nan, torch.inf):
        target = golden.float()
        target[1, 4] = wrong
        assert not steps.are_rounded(target, golden)
        assert steps.are_rounded(target, target.double())


@pytest.mark.parametrize(
    ("golden", "wrong"), [(np.inf, np.nan), (np.inf, -np.inf), (np.nan, np.inf)], ids=["NaN", "other sign", "no NaN"]
)
def test_another_value_that_is_not_finite_is_not_explained(golden: float, wrong: float) -> None:
    right = torch.tensor([1.0, 2.0, golden, golden], dtype=torch.float64)
    steps = Running().forward((right, 0), {})
    assert steps is not None
    assert steps.are_rounded(right.float(), right)
    assert not steps.are_rounded(torch.tensor([1.0, 2.0, golden, wrong]), right)


def test_a_sum_that_stops_adding_is_not_explained() -> None:
    terms = uniform(1_000_000).double()
    right = terms.cumsum(0)
    frozen = right.clone()
    frozen[900_000:] = right[900_000]
    steps = Running().forward((terms, 0), {})
    assert steps is not None
    assert not steps.are_rounded(frozen.float(), right)


def test_mindspores_running_sum_from_the_end_is_explained_from_the_end() -> None:
    x = TERMS["normal"](65536)
    steps = Running().forward((x, 1), {"exclusive": False, "reverse": True})
    assert steps is not None
    target = scanned(each_step, np.add, x.flip(1)).flip(1)
    assert steps.are_rounded(target, x.double().flip(1).cumsum(1).flip(1))


class _Scanned(torch.autograd.Function):
    """A running sum or product whose gradient is scanned too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: np.ufunc, scan: Scan) -> Tensor:
        found = scanned(scan, op, x.detach())
        ctx.save_for_backward(x.detach(), found)
        ctx.how = op, scan
        return found

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor) -> tuple[Tensor | None, ...]:
        (x, found), (op, scan) = ctx.saved_tensors, ctx.how
        terms = arriving[0] if op is np.add else arriving[0] * found
        gradient = scanned(scan, np.add, terms.flip(1).contiguous()).flip(1)
        return (gradient if op is np.add else gradient / x), None, None


def on_a_device(op: np.ufunc, scan: Scan) -> Callable[[Any, Any, Any], Any]:
    return lambda func, args, kwargs: _Scanned.apply(args[0], op, scan)


@pytest.mark.parametrize(("api", "op", "x"), [("cumsum", np.add, "equal"), ("cumprod", np.multiply, "above 1")])
def test_a_call_and_its_gradient_pass_on_a_device_that_rounds_each_step_and_fail_with_a_wrong_carry(
    tmp_path: Path, check: Any, device_that: Any, api: str, op: np.ufunc, x: str
) -> None:
    def program() -> None:
        given = (TERMS | FACTORS)[x](65536).requires_grad_()
        getattr(torch, api)(given, 1).backward(torch.ones(2, 65536))

    call = recorded_call(tmp_path, program)
    right = check(call, device=device_that(on_a_device(op, each_step)))
    assert right.forward.outcome == right.backward.outcome == "pass"
    assert "excused, the rounding of each step explains it" in right.forward.reason
    wrong = check(call, device=device_that(on_a_device(op, without_carry)))
    assert wrong.forward.outcome == wrong.backward.outcome == "fail"


def test_a_product_of_many_factors_passes_in_another_order(tmp_path: Path, check: Any, device_that: Any) -> None:
    def halves(func: Any, args: Any, kwargs: Any) -> Tensor:
        found = args[0]
        while found.shape[1] > 1:
            found = found[:, ::2] * found[:, 1::2]
        return found[:, 0] * wrong

    call = recorded_call(tmp_path, lambda: torch.prod(1 + 1e-3 * normal(8, 65536), 1))
    wrong = 1.0
    assert check(call, device=device_that(halves)).forward.outcome == "pass"
    wrong = 1 + 1e-3
    assert check(call, device=device_that(halves)).forward.outcome == "fail"
