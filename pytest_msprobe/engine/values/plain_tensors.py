"""Tensors as text, and the input of a call that a result holds in this form."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.strides import lay_out
from pytest_msprobe.results.result import decode_extra

#: Under this name a result has the smallest input that fails.
SMALLEST_INPUT = "smallest_input"


class PlainTensor(msgspec.Struct, frozen=True):
    """A tensor as text: its dtype, shape and strides, and the bytes of its elements, in order, as base64."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    data: str


class SmallestInput(msgspec.Struct, frozen=True):
    """The body of the forward record, as JSON, and the tensors by their place, as a saved case has them."""

    forward: str
    tensors: dict[str, PlainTensor]


def smallest_input_of(extras: Mapping[str, Any]) -> SmallestInput | None:
    """Return the smallest input that extras hold; None where they hold none."""
    return decode_extra(extras, SMALLEST_INPUT, SmallestInput)


def tensor_of(plain: PlainTensor) -> torch.Tensor:
    """Return the tensor. Raises ValueError where the text is of none, Skip where this torch lacks the dtype."""
    dtype, data = dtype_named(plain.dtype), bytearray(base64.b64decode(plain.data, validate=True))
    try:
        values = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        values = values.view(plain.shape)
        if len(plain.stride) != len(plain.shape) or min(plain.stride, default=0) < 0:
            raise ValueError(f"shape {plain.shape} cannot have strides {plain.stride}")
        return values if values.stride() == plain.stride else lay_out(values, plain.stride)
    except RuntimeError as error:
        raise ValueError(f"no tensor of {plain.dtype} {plain.shape}: {error}") from None


def plain_tensor(tensor: torch.Tensor) -> PlainTensor:
    """Return a CPU tensor as text."""
    elements = tensor.detach().contiguous().view(-1).view(torch.uint8)
    data = base64.b64encode(elements.numpy().tobytes()).decode()
    return PlainTensor(str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), data)
