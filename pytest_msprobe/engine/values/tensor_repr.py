"""Numbers and tensors as Python reads them."""

from __future__ import annotations

import math
from typing import Any

import torch

from msprobe_hooks.dump.memory_layouts import span

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
