"""torch's CPU tensors as MindSpore's and back, bit by bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import mindspore
import numpy as np
import torch


def to_mindspore(tensor: torch.Tensor) -> Any:
    """Return a MindSpore tensor with a copy of a CPU tensor's values, in the same dtype and shape.

    Raises NotImplementedError where MindSpore takes no values of that dtype.
    """
    values = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if values.dtype is torch.bfloat16:
        # numpy has no bfloat16: the bits travel as integers.
        return mindspore.Tensor(values.view(torch.int16).numpy().view(_bfloat16()))
    if str(values.dtype).startswith("torch.float8"):
        raise NotImplementedError(f"MindSpore takes no values of {values.dtype} from the host")
    return mindspore.Tensor(values.numpy())


def to_torch(tensor: Any) -> torch.Tensor:
    """Return a CPU tensor with the values of a MindSpore tensor; waits for them."""
    values = tensor.asnumpy()
    if str(tensor.dtype) == "BFloat16":
        return from_numpy(values.view(np.int16)).view(torch.bfloat16)
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
    converted = getattr(mindspore, name, None)
    if converted is None:
        raise NotImplementedError(f"MindSpore {mindspore.__version__} has no dtype {name}")
    return converted


@cache
def _bfloat16() -> np.dtype[Any]:
    """Return the dtype that MindSpore adds to numpy."""
    example = mindspore.Tensor(np.zeros(1, np.float32), mindspore_dtype(torch.bfloat16))
    return example.asnumpy().dtype  # type: ignore[no-any-return]
