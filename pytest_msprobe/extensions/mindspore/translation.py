"""A call that MindSpore recorded, in torch's terms, or the reason for which it has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

import msgspec

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import (
    BackwardRecord,
    Element,
    ForwardRecord,
    MappingElement,
    TensorElement,
    ValueElement,
    tensors_of,
)
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.results.outcomes import BaseSkipReason

_NEVER: Iterator[bool] = repeat(False)
_FLOATS = ("torch.float", "torch.bfloat", "torch.complex")


class MindSporeSkip(BaseSkipReason):
    """Reasons for which a call of MindSpore is not judged."""

    MISSING_API = "this MindSpore has no such API"
    NO_COUNTERPART = "torch has no counterpart that could compute the golden result"
    COMPILED = "a function that the program compiled: it is not in the recording"
    COMPILED_ELSEWHERE = "no loaded module has this compiled function: load it by -p, or import it in conftest.py"
    NO_SETTINGS = "the recording does not say what the primitive was made with, and the shapes leave it open"
    DRAWS = "the compiled function returns different results when run twice, as one that draws random numbers"


def in_torch_terms(call: Call, counterpart: ApiName | None) -> Call:
    """Return the call with torch's dtype names, and gradients for the float tensors where a backward was recorded.

    msprobe's elements of MindSpore do not say which tensors require a gradient: all do but those with a null in the
    backward record. This project's recorder says it.
    """
    return replace(
        call,
        forward=_forward(call.forward, call.backward, (counterpart or call.name).api),
        backward=None if call.backward is None else _backward(call.backward),
        counterpart=counterpart,
    )


def foreign_type(call: Call) -> str | None:
    """Return the type of the first tensor that another framework recorded; None where there is none."""
    recorded = [*call.forward.args, *call.forward.kwargs.values()]
    return next((element.type for element in tensors_of(recorded) if element.type.startswith("torch.")), None)


def _forward(record: ForwardRecord, backward: BackwardRecord | None, api: str) -> ForwardRecord:
    requires_grad = iter(_wanted(record, backward, api))
    return msgspec.structs.replace(
        record,
        args=[_element(element, requires_grad) for element in record.args],
        kwargs={key: _element(element, requires_grad) for key, element in record.kwargs.items()},
        output=[_element(element) for element in record.output],
    )


def _wanted(record: ForwardRecord, backward: BackwardRecord | None, api: str) -> list[bool]:
    """Return for each tensor among the arguments whether its gradient is judged."""
    tensors = tensors_of([*record.args, *record.kwargs.values()])
    if backward is None:
        return [False] * len(tensors)
    if any(element.requires_grad for element in tensors):
        return [element.requires_grad for element in tensors]
    gradients = backward.grad_inputs
    if any(gradients) and len(gradients) == len(tensors) and all(map(_fits, gradients, tensors)):
        return [element is not None for element in gradients]
    # Nothing is differentiated through running mean and variance.
    first = op_info(api).running_statistics
    return [first is None or i not in (first, first + 1) for i in range(len(tensors))]


def _fits(gradient: Element, tensor: TensorElement) -> bool:
    return gradient is None or (isinstance(gradient, TensorElement) and gradient.shape == tensor.shape)


def _backward(record: BackwardRecord) -> BackwardRecord:
    return msgspec.structs.replace(
        record,
        grad_outputs=[_element(element) for element in record.grad_outputs],
        grad_inputs=[_element(element) for element in record.grad_inputs],
    )


def _element(element: Element, requires_grad: Iterator[bool] = _NEVER) -> Element:
    if isinstance(element, TensorElement):
        dtype = torch_dtype_name(element.dtype)
        return msgspec.structs.replace(
            element, dtype=dtype, requires_grad=next(requires_grad) and dtype.startswith(_FLOATS)
        )
    if isinstance(element, ValueElement):
        if element.type != "mindspore.dtype":
            return element
        return ValueElement("torch.dtype", torch_dtype_name(str(element.value)))
    if isinstance(element, MappingElement):
        return MappingElement({key: _element(item, requires_grad) for key, item in element.items.items()})
    if isinstance(element, list):
        return [_element(item, requires_grad) for item in element]
    return element
