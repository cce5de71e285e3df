"""Tensors are read as arrays without a trace on the tensor."""

from __future__ import annotations

import pytest
import torch

from msprobe_standards import measure
from msprobe_standards.metrics import bit_equal
from msprobe_standards.tensor_layouts import as_array

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.complex128, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 1, 3)], ids=str)
def test_an_array_holds_what_the_tensor_holds(dtype, shape):
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    for each in (tensor, tensor.expand(2, *shape), tensor.reshape(1, *shape).transpose(0, -1)):
        array = as_array(each)
        assert (array.shape, array.dtype) == (tuple(each.shape), each.numpy().dtype)
        assert array.tolist() == each.tolist()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16, torch.complex32], ids=str)
@pytest.mark.parametrize("count", [8, 2**14])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_the_memory_of_a_tensor_that_was_measured_can_be_resized(dtype, count):
    target = torch.zeros(count).to(dtype)
    golden = target.clone()
    bit_equal(target, golden)
    if dtype is not torch.complex32:
        measure(target, golden)
    storage = target.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    assert storage.nbytes() == size
