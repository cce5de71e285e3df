"""Records as the JSON of a file: those that were read, to pass them on, and bodies made here."""

from __future__ import annotations

import json
from typing import Any

from msprobe_hooks.dump.memory_layouts import layout_fields
from msprobe_hooks.dump.schema import (
    NONFINITE_COUNTS,
    STATISTICS,
    BackwardRecord,
    Element,
    ForwardRecord,
    MappingElement,
    TensorElement,
)


def forward_body(record: ForwardRecord) -> dict[str, Any]:
    """Return a body that `forward_record` reads as this record."""
    details: dict[str, Any] = {place: {"container": container} for place, container in record.containers.items()}
    if record.settings is not None:
        details["settings"] = record.settings
    return {
        "input_args": list(map(_plain, record.args)),
        "input_kwargs": {key: _plain(element) for key, element in record.kwargs.items()},
        "output": list(map(_plain, record.output)),
        "parameters": {key: _plain(element) for key, element in record.parameters.items()},
        "is_recompute": record.is_recompute,
        "exception": record.exception,
        "details": details,
    }


def backward_body(record: BackwardRecord) -> dict[str, Any]:
    """Return a body that `backward_record` reads as this record."""
    return {"input": list(map(_plain, record.grad_outputs)), "output": list(map(_plain, record.grad_inputs))}


def encode_record(body: Any) -> bytes:
    """Return a body as a file has it, NaN and infinities as bare tokens."""
    return json.dumps(body).encode()


def _plain(element: Element) -> Any:
    if element is None:
        return None
    if isinstance(element, list):
        return list(map(_plain, element))
    if isinstance(element, MappingElement):
        return {key: _plain(item) for key, item in element.items.items()}
    if isinstance(element, TensorElement):
        return _tensor(element)
    return {"type": element.type, "format" if element.type == "torch.memory_format" else "value": element.value}


def _tensor(element: TensorElement) -> dict[str, Any]:
    statistics = {name: getattr(element, field) for field, name in STATISTICS.items()}
    statistics |= {name: getattr(element, name) for name in NONFINITE_COUNTS}
    return {
        "type": element.type,
        "dtype": element.dtype,
        "shape": list(element.shape),
        **{name: value for name, value in statistics.items() if value is not None},
        "requires_grad": element.requires_grad,
        "md5": element.checksum,
        "data_name": element.data_name,
        **(layout_fields(element.layout) if element.layout is not None else {}),
    }
