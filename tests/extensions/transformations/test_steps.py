"""Each step of a transformation: what it makes of a tensor, by numpy and by its laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.transformations.axes import Permute, Reshape, Slice, Transpose
from pytest_msprobe.extensions.transformations.block_orders import BlockOrder, Product, QkvOrder, RotaryPairs
from pytest_msprobe.extensions.transformations.step import (
    ALL_KEPT,
    ArrayFile,
    CallValue,
    Dequantisation,
    Scaling,
    Step,
    StepError,
)


class Call:
    """A call with one other tensor, ``input.1``."""

    def __init__(self, other: torch.Tensor | None = None) -> None:
        self.other = other

    def tensor(self, place: str) -> torch.Tensor:
        if self.other is None or place != "input.1":
            raise StepError(f"there is no {place}")
        return self.other


def saved(folder: Path, array: Any) -> ArrayFile:
    path = folder / "a.npy"
    np.save(path, array)
    return ArrayFile(path, "", "t.yaml, line 1")


def orthogonal(size: int, seed: int) -> torch.Tensor:
    draws = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(draws)[0]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 9), rows=st.integers(1, 4), is_left=st.booleans(), seed=st.integers(0, 99))
def test_a_rotation_and_its_transpose_give_the_tensor_back(
    tmp_path_factory: pytest.TempPathFactory, size: int, rows: int, is_left: bool, seed: int
) -> None:
    matrix = saved(tmp_path_factory.mktemp("q"), orthogonal(size, seed).numpy())
    x = numbers(size, rows, seed=seed) if is_left else numbers(rows, size, seed=seed)
    there = Product(matrix, is_left=is_left, is_rotation=True).apply(x, Call())
    back = Product(matrix, is_left=is_left, is_transposed=True, is_rotation=True).apply(there, Call())
    torch.testing.assert_close(back, x.double(), rtol=0, atol=1e-12)
    # A rotation keeps the norm, and that alone.
    assert there.norm().item() == pytest.approx(x.double().norm().item(), rel=1e-12)
    assert Product(matrix, is_rotation=True).keeps == {"norm"}


def test_a_product_is_that_of_float64_on_either_side(tmp_path: Path) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = numbers(2, 5, 3).to(torch.bfloat16)
    right = Product(saved(tmp_path, matrix)).apply(x, Call())
    np.testing.assert_array_equal(right.numpy(), x.double().numpy() @ matrix.astype(np.float64))
    left = Product(ArrayFile(tmp_path / "a.npy", "", ""), is_left=True).apply(numbers(4, 2), Call())
    assert left.shape == (3, 2)
    assert Product(ArrayFile(tmp_path / "a.npy", "", "")).keeps == frozenset()


PERMUTATIONS: list[tuple[Step, tuple[int, ...]]] = [
    (Transpose((0, -1)), (2, 3, 4)),
    (Permute((2, 0, 1)), (2, 3, 4)),
    (Reshape((-1, 6)), (2, 3, 4)),
    (BlockOrder((1, 0), axis=0), (4, 3)),
    (RotaryPairs("half", 8, rotary_dim=4), (3, 16)),
    (RotaryPairs("interleaved", 4, axis=1), (3, 8, 2)),
    (QkvOrder("blocks", heads=4, groups=2), (3, 16)),
    (QkvOrder("grouped", heads=4, groups=1, axis=0), (12, 5)),
]


@pytest.mark.parametrize(("step", "shape"), PERMUTATIONS, ids=lambda each: type(each).__name__)
def test_a_permutation_keeps_the_statistics_and_says_so(step: Step, shape: tuple[int, ...]) -> None:
    x = numbers(*shape).double()
    turned = step.apply(x, Call())
    assert step.keeps == ALL_KEPT
    assert torch.equal(turned.flatten().sort().values, x.flatten().sort().values)
    assert tuple(turned.shape) == step.shape(shape)


@settings(max_examples=30, deadline=None)
@given(pairs=st.integers(1, 5), heads=st.integers(1, 3), rest=st.integers(0, 3))
def test_rotary_pairs_come_back_from_either_layout(pairs: int, heads: int, rest: int) -> None:
    head = 2 * pairs + rest
    x = torch.arange(head * heads)
    there = RotaryPairs("half", head, 2 * pairs).apply(x, Call())
    assert torch.equal(RotaryPairs("interleaved", head, 2 * pairs).apply(there, Call()), x)


def test_rotary_halves_hold_the_even_elements_first() -> None:
    assert RotaryPairs("half", 6).order(6) == [0, 2, 4, 1, 3, 5]


@settings(max_examples=30, deadline=None)
@given(shared=st.integers(1, 4), groups=st.integers(1, 4), width=st.integers(1, 3))
def test_queries_keys_and_values_come_back_from_either_layout(shared: int, groups: int, width: int) -> None:
    x = torch.arange((shared + 2) * groups * width)
    there = QkvOrder("blocks", shared * groups, groups).apply(x, Call())
    assert torch.equal(QkvOrder("grouped", shared * groups, groups).apply(there, Call()), x)


def test_grouped_queries_keys_and_values_become_blocks() -> None:
    # Two groups of two queries, a key and a value: q0 q1 k0 v0 q2 q3 k1 v1.
    assert QkvOrder("blocks", heads=4, groups=2).order(8) == [0, 1, 4, 5, 2, 6, 3, 7]


def test_a_slice_is_pythons() -> None:
    x = numbers(4, 7)
    assert torch.equal(Slice(-1, 1, -2, 2).apply(x, Call()), x[:, 1:-2:2])


@pytest.mark.parametrize(
    ("scale", "axis", "group", "wanted"),
    [
        (np.float32([0.5]), -1, None, lambda q: (q - 3) * 0.5),
        (np.float32([1, 2, 4]), 0, None, lambda q: (q - 3) * np.array([[1], [2], [4]])),
        (np.float32([1, 2]), 1, 2, lambda q: (q - 3) * np.array([1, 1, 2, 2])),
        (np.float32([[1, 2], [3, 4], [5, 6]]), -1, 2, lambda q: (q - 3) * np.repeat([[1, 2], [3, 4], [5, 6]], 2, 1)),
    ],
    ids=["tensor", "channel", "group", "groups of each row"],
)
def test_dequantisation_is_by_tensor_channel_or_group(
    tmp_path: Path, scale: Any, axis: int, group: int | None, wanted: Any
) -> None:
    q = np.arange(12, dtype=np.int8).reshape(3, 4)
    step = Dequantisation(saved(tmp_path, scale), 3.0, axis, group)
    np.testing.assert_array_equal(step.apply(torch.from_numpy(q), Call()).numpy(), wanted(q.astype(np.float64)))


def test_a_scale_may_be_another_value_of_the_call() -> None:
    q = torch.tensor([[2, 4], [6, 8]], dtype=torch.int8)
    turned = Dequantisation(CallValue("input.1")).apply(q, Call(torch.tensor([[0.5], [2.0]])))
    assert turned.tolist() == [[1, 2], [12, 16]]


def test_a_scale_is_a_factor_or_a_divisor() -> None:
    x, weight = numbers(2, 3), torch.tensor([1.0, 2.0, 4.0])
    assert torch.equal(Scaling(CallValue("input.1")).apply(x, Call(weight)), x.double() * weight)
    divided = Scaling(CallValue("input.1"), is_quotient=True).apply(x, Call(weight))
    assert torch.equal(divided, x.double() / weight.double())
    assert torch.equal(Scaling(0.5, axis=0).apply(x, Call()), x.double() / 2)


@pytest.mark.parametrize(
    ("step", "shape", "problem"),
    [
        (Transpose((0, 3)), (2, 2), "no axis 3 in shape"),
        (Permute((1, 0)), (2, 2, 2), "order of 2 axes does not fit"),
        (Reshape((4, -1)), (2, 3), "6 elements, which do not fit into"),
        (Slice(0, 5), (3, 2), "nothing of"),
        (BlockOrder((0, 1)), (3,), "3 is not 2 equal blocks"),
        (RotaryPairs("half", 4), (6,), "6 is not a number of heads of 4"),
        (QkvOrder("blocks", 2, 1), (6,), "6 is not 2 queries with 1 keys"),
        (Dequantisation(CallValue("input.1")), (2, 2), "input.1 of shape"),
        (Dequantisation(CallValue("input.2")), (2, 2), "there is no input.2"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_step_that_does_not_fit_says_why(step: Step, shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(StepError, match=problem):
        step.apply(numbers(*shape), Call(torch.ones(3)))
