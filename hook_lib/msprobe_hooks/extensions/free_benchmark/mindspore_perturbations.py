"""The free benchmark's perturbations of MindSpore's tensors. The values are changed on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor

from msprobe_hooks.extensions.free_benchmark.argument_changes import (
    NOTHING_NARROW,
    Arguments,
    dtype_name,
    noise_for,
    on_all_tensors,
    on_first_tensor,
    swapped_places,
)
from msprobe_hooks.extensions.mindspore.host_values import host
from msprobe_hooks.recording.array_statistics import Array

_BITS = {2: np.int16, 4: np.int32, 8: np.int64}
_SMALLEST_NORMAL = {"bfloat16": 2.0**-126, "float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}
_NARROW = (mindspore.float16, mindspore.bfloat16)


def perturb(perturbation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Return the arguments of a call, perturbed by the perturbation of that name.

    Raises NotPerturbedError, with the reason, where these arguments cannot take it.
    """
    return _PERTURBATIONS[perturbation](args, kwargs)


def add_noise(tensor: Tensor) -> Tensor:
    """Return x + e where abs(x) > sqrt(e), else x; e is the noise of the dtype, and often too small to be seen."""
    values = _wide(tensor)
    noise = noise_for(tensor.dtype, lambda: _largest(values))
    return Tensor(np.where(np.abs(values) > noise**0.5, values + noise, values)).astype(tensor.dtype)


def bit_noise(tensor: Tensor) -> Tensor:
    """Return x with its last bit flipped, but for zeros and subnormal numbers."""
    values = _wide(tensor)
    noise_for(tensor.dtype, lambda: _largest(values))
    # The array of bfloat16 has a dtype that only MindSpore knows, of two bytes.
    array = tensor.asnumpy()
    bits = _BITS[array.itemsize]
    flipped = np.abs(values) > _SMALLEST_NORMAL[dtype_name(tensor.dtype)]
    return Tensor((np.ascontiguousarray(array).view(bits) ^ flipped.astype(bits)).view(array.dtype))


def change_value(tensor: Tensor) -> Tensor:
    """Return x with its first and last elements swapped; with two dimensions or more, x[0][0] and x[-1][-1]."""
    first, last = swapped_places(tuple(tensor.shape))
    array = tensor.asnumpy()
    swapped = array.copy()
    swapped[first], swapped[last] = array[last], array[first]
    return Tensor(swapped)


def no_change(tensor: Tensor) -> Tensor:
    """Return x: whatever differs then, differs by itself."""
    return tensor


def _wide(tensor: Tensor) -> Array:
    return host(tensor).astype(np.float64)


def _largest(values: Array) -> float | None:
    return float(np.abs(values).max()) if values.size else None


def _widened(tensor: Tensor) -> Tensor:
    return tensor.astype(mindspore.float32) if tensor.dtype in _NARROW else tensor


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value.is_floating_point())


_PERTURBATIONS: Mapping[str, Callable[..., Arguments]] = {
    "improve_precision": on_all_tensors(_widened, Tensor, NOTHING_NARROW),
    "add_noise": on_first_tensor(add_noise, _is_float),
    "bit_noise": on_first_tensor(bit_noise, _is_float),
    "change_value": on_first_tensor(change_value, _is_float),
    "no_change": on_first_tensor(no_change, _is_float),
}
