"""Tensors as text: expressions that Python reads, and bytes of an input that a result holds."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from msprobe_hooks.dump.memory_layouts import span
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.strides import lay_out
from pytest_msprobe.results.result import decode_extra

#: More numbers than this are not printed.
MOST_NUMBERS = 64


def tensor_text(tensor: torch.Tensor) -> str:
    """Return the expression that makes a tensor with its dtype, shape and strides; of a large one a placeholder."""
    dtype, shape = str(tensor.dtype), tuple(tensor.shape)
    if not tensor.numel():
        return f"torch.empty({shape}, dtype={dtype})"
    values = [element_text(value, tensor.dtype) for value in tensor.reshape(-1).tolist()]
    if tensor.is_contiguous() and len(values) > 4 and len(set(values)) == 1:
        return f"torch.full({shape}, {values[0]}, dtype={dtype})"
    if len(values) > MOST_NUMBERS:
        return f"...  # {dtype} {shape}, too many numbers to print"
    if tensor.is_contiguous():
        return f"torch.tensor({nested_text(values, shape)}, dtype={dtype})"
    memory = tensor.as_strided((span(shape, tensor.stride()),), (1,))
    flat = ", ".join(element_text(value, tensor.dtype) for value in memory.tolist())
    return f"torch.tensor([{flat}], dtype={dtype}).as_strided({shape}, {tensor.stride()})"


def nested_text(values: list[str], shape: tuple[int, ...]) -> str:
    """Return spelled elements as the nested lists of a shape."""
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    return f"[{', '.join(nested_text(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))}]"


def element_text(value: Any, dtype: torch.dtype) -> str:
    """Return the spelling of an element with as few digits as its dtype needs."""
    if isinstance(value, complex):
        return f"complex({number_text(value.real)}, {number_text(value.imag)})"
    if not isinstance(value, float) or not math.isfinite(value):
        return number_text(value)
    # The fewest digits that name this number among those of its dtype.
    for digits in range(1, 17):
        short = float(f"{value:.{digits}g}")
        if torch.tensor(short, dtype=torch.float64).to(dtype).item() == value:
            return repr(short)
    return repr(value)


def number_text(value: Any) -> str:
    """Return a number as Python reads it; NaN and infinities have no literal."""
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f"float('{value}')"


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
