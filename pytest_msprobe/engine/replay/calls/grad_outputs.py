"""The gradients of a call's outputs, made from its backward record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from msprobe_hooks.dump.memory_layouts import Layout
from msprobe_hooks.dump.schema import BackwardRecord, TensorElement, tensors_of
from pytest_msprobe.engine.replay.calls.arguments import TensorSource
from pytest_msprobe.engine.replay.calls.laid_out_tensors import Memory, in_memory, lay_out_all
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.strides import resolved
from pytest_msprobe.results.outcomes import Skip, SkipReason


def grad_outputs(
    record: BackwardRecord,
    source: TensorSource,
    look: Callable[[Any], None] | None,
    output: Any,
    *,
    memory: Memory = "recorded",
) -> dict[str, torch.Tensor]:
    """Return one CPU gradient per differentiable output, by the output's path.

    msprobe records what arrives at one autograd node. A gradient of an output's own shape is taken as that output's;
    where a composite API's node had other shapes, the recorded range is drawn in the output's shape. Outputs whose
    recorded gradient is null get none, unless all are null though gradients left: then the output was changed in place
    behind the call, and what arrived is drawn between -1 and 1. A gradient has its output's dtype. ``look`` is given
    the output, of which only shapes and dtypes may stay after that. ``memory`` says where gradients are to lie. Raises
    Skip where nothing can be differentiated, as an operator of torch_npu for which it has no gradient.
    """
    if look is not None:
        look(output)
    tensors = list(tensors_with_paths(output))
    recorded = tensors_of(record.grad_outputs)
    if recorded and record.name.startswith("NPU.") and record.grad_inputs and not tensors_of(record.grad_inputs):
        raise Skip(SkipReason.NO_GRADIENT, "torch_npu gave none when it was recorded: the operator has no gradient")
    if recorded:
        elements = _matched(record, tensors, recorded)
    elif tensors_of(record.grad_inputs):
        elements = {path: _unknown(tensor) for path, tensor in tensors if tensor.requires_grad}
    else:
        raise Skip(SkipReason.NO_GRADIENT, "no gradient was recorded")
    dtypes = {path: tensor.dtype for path, tensor in tensors}
    gradients = {path: source(element, f"grad.{path}").to(dtypes[path]) for path, element in elements.items()}
    if not gradients:
        raise Skip(SkipReason.NO_GRADIENT, "no output depends on an input that requires a gradient")
    layouts = {path: element.layout for path, element in elements.items() if element.layout is not None}
    return _laid_out(gradients, layouts, memory) if layouts and memory != "given" else gradients


def _laid_out(
    gradients: dict[str, torch.Tensor], layouts: Mapping[str, Layout], memory: Memory
) -> dict[str, torch.Tensor]:
    laid_out = {**gradients, **lay_out_all(gradients, in_memory(layouts, memory)).tensors}
    if memory != "contiguous":
        return laid_out
    return {path: resolved(gradient).contiguous() for path, gradient in laid_out.items()}


def _matched(
    record: BackwardRecord, tensors: list[tuple[str, torch.Tensor]], recorded: list[TensorElement]
) -> Mapping[str, TensorElement]:
    differentiable = [(path, tensor) for path, tensor in tensors if tensor.requires_grad]
    # an autograd node of torch_npu has places for these alone
    if len(record.grad_outputs) == len(differentiable):
        tensors = differentiable
    by_position = record.grad_outputs if len(record.grad_outputs) == len(tensors) else [None] * len(tensors)
    positions_known = any(
        isinstance(element, TensorElement) and element.shape == tuple(tensor.shape)
        for element, (_, tensor) in zip(by_position, tensors, strict=True)
    )
    matched = {}
    for (path, tensor), element in zip(tensors, by_position, strict=True):
        if not tensor.requires_grad or (positions_known and element is None):
            continue
        shape = tuple(tensor.shape)
        if not (isinstance(element, TensorElement) and element.shape == shape):
            element = next((other for other in recorded if other.shape == shape), None) or _reshaped(recorded[0], shape)
        matched[path] = element
    return matched


def _unknown(output: torch.Tensor) -> TensorElement:
    """Return a gradient of an output that was not recorded."""
    return TensorElement(
        type="torch.Tensor", dtype=str(output.dtype), shape=tuple(output.shape), max=1.0, min=-1.0, data_name=None
    )


def _reshaped(element: TensorElement, shape: tuple[int, ...]) -> TensorElement:
    """Keep a gradient's range and dtype; mean and norm belong to the shape it had."""
    return TensorElement(
        type=element.type,
        dtype=element.dtype,
        shape=shape,
        max=element.max,
        min=element.min,
        finite_max=element.finite_max,
        finite_min=element.finite_min,
    )
