"""Digests of tensors, against a sum of words by numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from msprobe_hooks.extensions.repeated_steps.digests import CallDigests, digest, named_digests


def number(tensor: Tensor) -> int:
    found = digest(tensor)
    assert found is not None
    return int(found)


def test_a_digest_is_the_sum_of_the_64_bit_words() -> None:
    tensor = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    assert number(tensor) == int(tensor.numpy().view(np.int64).sum())


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool, torch.complex64],
)
@pytest.mark.parametrize("count", [1, 7, 8, 33])
def test_each_flipped_bit_changes_the_digest(dtype: torch.dtype, count: int) -> None:
    tensor = torch.ones(count).to(dtype)
    changed = []
    for place in {0, count // 2, count - 1}:
        for bit in range(8 * tensor.element_size()):
            flipped = tensor.clone()
            flipped[place : place + 1].view(torch.uint8)[bit // 8] ^= 1 << bit % 8
            changed.append(number(flipped))
    assert number(tensor) not in changed


@pytest.mark.parametrize(
    "tensor",
    [torch.arange(24.0).view(4, 6)[:, 1:4], torch.arange(24.0)[1:8], torch.ones(1).expand(5), torch.ones(())],
)
def test_a_view_has_the_digest_of_its_elements(tensor: Tensor) -> None:
    assert number(tensor) == number(tensor.clone(memory_format=torch.contiguous_format))


def test_a_dense_tensor_is_read_in_the_order_of_its_memory() -> None:
    tensor = torch.randn(2, 2, 4, 3)
    assert number(tensor.permute(0, 3, 1, 2)) == number(tensor)


def test_what_has_no_values_is_left_out() -> None:
    named = {"meta": torch.ones(2, device="meta"), "sparse": torch.ones(2).to_sparse(), "empty": torch.ones(0)}
    assert named_digests(named.items()) == {"empty": 0}


def test_what_is_traced_is_no_call_of_a_repeated_step():
    x = torch.ones(4, 8)
    with CallDigests() as digests:
        make_fx(lambda y: (torch.relu(y) * 2).sum(), tracing_mode="fake")(x)
        torch.sigmoid(x)
    assert digests.operators == [torch.ops.aten.sigmoid.default]
