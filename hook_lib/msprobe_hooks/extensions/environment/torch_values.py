"""What a model is given and consists of, as digests and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from msprobe_hooks.extensions.environment.start_file import TensorFact, fact
from msprobe_hooks.torch.arrays import as_bytes
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import Deferred, fetch, is_readable, local_part, measure

# A choice: a batch that holds itself ends here.
_DEEPEST = 32


def values_given(
    args: tuple[Any, ...], kwargs: dict[str, Any], fact_of: Callable[[Any], TensorFact | None]
) -> dict[str, TensorFact | str]:
    """Return the values of a call by place, as ``args.0`` or ``kwargs.inputs.mask``.

    ``fact_of`` describes a tensor or an array, and returns None for what is neither.
    """
    return dict([*_leaves("args", args, 0, fact_of), *_leaves("kwargs", kwargs, 0, fact_of)])


def _leaves(
    path: str, value: Any, depth: int, fact_of: Callable[[Any], TensorFact | None]
) -> Iterator[tuple[str, TensorFact | str]]:
    fact = fact_of(value)
    if fact is not None:
        yield path, fact
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield path, f"{type(value).__name__}: {value}" if isinstance(value, str) else str(value)
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}", each, depth + 1, fact_of)
    elif depth < _DEEPEST and isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _leaves(f"{path}.{place}", each, depth + 1, fact_of)


def weights_and_buffers(model: nn.Module) -> tuple[dict[str, TensorFact], dict[str, TensorFact]]:
    """Return the parameters and the buffers of a model by name; of distributed ones the part of this rank."""
    parameters = {name: tensor_fact(value) for name, value in model.named_parameters()}
    return parameters, {name: tensor_fact(value) for name, value in model.named_buffers()}


def batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, TensorFact | str]:
    """Return the values that a model was called with, by place, as ``args.0`` or ``kwargs.inputs.mask``."""
    return values_given(args, kwargs, _fact_of)


def _fact_of(value: Any) -> TensorFact | None:
    if isinstance(value, Tensor):
        return tensor_fact(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return tensor_fact(torch.from_numpy(np.ascontiguousarray(value).copy()))
    return None


def tensor_fact(tensor: Tensor) -> TensorFact:
    """Return digest (BLAKE2b of the bytes of the contiguous tensor), statistics, dtype and shape of a tensor."""
    with NoDispatch():
        own = local_part(tensor.detach())
        dtype, shape = str(own.dtype).removeprefix("torch."), tuple(own.shape)
        if not is_readable(own):
            return TensorFact(dtype=dtype, shape=shape)
        known = measure(own)
        if isinstance(known, Deferred):
            fetch([known])
        return fact(known, dtype, shape, _bytes(own))


def _bytes(tensor: Tensor) -> memoryview:
    return as_bytes(tensor.resolve_conj().resolve_neg().contiguous().cpu()).data
