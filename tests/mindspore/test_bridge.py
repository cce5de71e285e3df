"""MindSpore's functions as functions on torch tensors."""

from __future__ import annotations

import mindspore
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mindspore import mint, ops

from pytest_msprobe.extensions.mindspore.jit_functions import bridged, mindspore_dtype, to_mindspore, to_torch

DTYPES = """bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64
    complex64 complex128""".split()


@given(
    dtype=st.sampled_from([getattr(torch, name) for name in DTYPES]),
    shape=st.lists(st.integers(0, 4), max_size=4),
    seed=st.integers(0, 999),
)
def test_a_tensor_comes_back_bit_by_bit(dtype: torch.dtype, shape: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty(shape, dtype=dtype).nbytes
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), dtype=torch.uint8, generator=generator)
    tensor = bits.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    there = to_mindspore(tensor)
    assert there.dtype == mindspore_dtype(dtype)
    assert there.shape == tuple(shape)
    back = to_torch(there)
    assert back.dtype is dtype
    assert back.shape == tensor.shape
    assert torch.equal(back.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_gradients_reach_tensors_in_lists_and_keywords() -> None:
    x, y, z = (torch.randn(2, 3, requires_grad=True) for _ in range(3))
    joined = bridged(lambda tensors, *, weight: mint.cat(tensors) * mint.cat([weight, weight]))([x, y], weight=z)
    arriving = torch.randn(4, 3)
    found = torch.autograd.grad(joined, (x, y, z), arriving)
    wanted = torch.autograd.grad(torch.cat([x, y]) * torch.cat([z, z]), (x, y, z), arriving)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs)


def test_each_of_several_outputs_takes_its_own_gradient() -> None:
    x = torch.randn(4, 6, requires_grad=True)
    first, second = bridged(lambda x: mint.split(x, 3, 1))(x)
    ones, twos = torch.ones(4, 3), torch.full((4, 3), 2.0)
    (both,) = torch.autograd.grad((first, second), x, (ones, twos), retain_graph=True)
    assert torch.equal(both, torch.cat([ones, twos], 1))
    (one,) = torch.autograd.grad(second, x, twos)
    assert torch.equal(one, torch.cat([torch.zeros(4, 3), twos], 1))


def test_whole_numbers_among_the_outputs_take_no_gradient() -> None:
    values, places = bridged(lambda x: mint.max(x, 1))(torch.randn(4, 6, requires_grad=True))
    assert values.requires_grad
    assert not places.requires_grad


def test_what_an_in_place_call_changed_is_what_it_returns() -> None:
    x = torch.zeros(2, 2)
    found = bridged(mindspore.Tensor.copy_, in_place=True)(x, torch.ones(2, 2))
    assert found is x
    assert torch.equal(x, torch.ones(2, 2))
    assert x._version > 0


def test_an_in_place_call_without_a_result_changes_its_tensor() -> None:
    x = torch.zeros(2, 2)

    def assign(x: mindspore.Tensor) -> None:
        x[0] = 3.0

    assert bridged(assign, in_place=True)(x) is None
    assert x.tolist() == [[3.0, 3.0], [0.0, 0.0]]


def test_a_missing_kernel_is_distinguished_from_an_error() -> None:
    with pytest.raises(NotImplementedError, match=r"The kernel Log2 unregistered\.$"):
        bridged(mint.log2)(torch.ones(2))
    with pytest.raises(RuntimeError, match="must be equal to shape2"):
        bridged(mint.matmul)(torch.ones(2, 3), torch.ones(2, 3))


def test_dtypes_among_the_arguments_are_mindspores() -> None:
    assert bridged(lambda x, *, dtype: ops.cast(x, dtype))(torch.ones(2), dtype=torch.float16).dtype is torch.float16
