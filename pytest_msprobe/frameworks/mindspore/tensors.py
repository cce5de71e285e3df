"""torch's CPU tensors as MindSpore's and back, bit by bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import mindspore
import numpy as np
import torch

# numpy has no such dtypes: their bits travel as integers.
_AS_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}
_FROM_BITS = {"BFloat16": torch.bfloat16, "Float8E4M3FN": torch.float8_e4m3fn, "Float8E5M2": torch.float8_e5m2}


def to_mindspore(tensor: torch.Tensor) -> Any:
    """Return a MindSpore tensor with a copy of a CPU tensor's values, in the same dtype and shape."""
    values = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if values.dtype not in _AS_BITS:
        return mindspore.Tensor(values.numpy())
    bits = values.view(_AS_BITS[values.dtype]).numpy()
    return mindspore.Tensor(bits.view(_numpy_dtype(values.dtype)))


def to_torch(tensor: Any) -> torch.Tensor:
    """Return a CPU tensor with the values of a MindSpore tensor; waits for them."""
    values = tensor.asnumpy()
    dtype = _FROM_BITS.get(str(tensor.dtype))
    if dtype is not None:
        return from_numpy(values.view(np.dtype(f"int{8 * dtype.itemsize}"))).view(dtype)
    return from_numpy(values)


def from_numpy(values: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a CPU tensor with the values of an array."""
    if values.dtype == np.uint64:
        # On some platforms an array says ulonglong, which torch does not know.
        values = values.view(np.dtype("uint64"))
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def mindspore_dtype(dtype: torch.dtype) -> Any:
    """Return MindSpore's dtype of the same meaning. Raises NotImplementedError where there is none."""
    name = {torch.bool: "bool_"}.get(dtype, str(dtype).removeprefix("torch."))
    found = getattr(mindspore, name, None)
    if found is None:
        raise NotImplementedError(f"MindSpore {mindspore.__version__} has no dtype {name}")
    return found


@cache
def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the dtype that MindSpore adds to numpy for one that numpy lacks."""
    example = mindspore.Tensor(np.zeros(1, np.float32), mindspore_dtype(dtype))
    return example.asnumpy().dtype  # type: ignore[no-any-return]
