"""What a model is given and consists of, as digests and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from msprobe_hooks.instruments.environment.batches import values_given
from msprobe_hooks.instruments.environment.facts import fact
from msprobe_hooks.instruments.environment.started import TensorFact
from msprobe_hooks.torch.quiet import Quiet
from msprobe_hooks.torch.statistics import Deferred, fetch, is_readable, local_part, measure


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
    with Quiet():
        own = local_part(tensor.detach())
        dtype, shape = str(own.dtype).removeprefix("torch."), tuple(own.shape)
        if not is_readable(own):
            return TensorFact(dtype=dtype, shape=shape)
        known = measure(own)
        if isinstance(known, Deferred):
            fetch([known])
        return fact(known, dtype, shape, _bytes(own))


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).cpu().numpy().data
