"""Records as JSON: encoded records, bodies made here, and a `Dump` of executed kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from msprobe_hooks.dump.memory_layouts import layout_fields
from msprobe_hooks.dump.names import api_record
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import (
    NONFINITE_COUNTS,
    STATISTICS,
    BackwardRecord,
    Element,
    ForwardRecord,
    MappingElement,
    TensorElement,
)
from msprobe_hooks.errors import RecordError


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
        **({} if element.nnz is None else {"nnz": element.nnz, "is_coalesced": element.is_coalesced}),
        **(layout_fields(element.layout) if element.layout is not None else {}),
    }


Side = Literal["input", "output"]
#: The sides by the words of files' names.
SIDES: Final[Mapping[str, Side]] = {"input": "input", "output": "output"}

_PARAMETER = "Parameter"
_GRADIENTS = "Gradients"
_FIELDS = {"Max": "max", "Min": "min", "Mean": "mean", "Norm": "norm", "md5": "checksum", "data_name": "data_name"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One execution of a kernel: its type (``MatMul``), the op's name, and its tensors by slot; scalars have none."""

    type: str
    op: str
    number: int
    inputs: Mapping[int, TensorElement]
    outputs: Mapping[int, TensorElement]
    problems: tuple[str, ...] = ()

    @property
    def is_parameter(self) -> bool:
        """Return whether this is not a kernel but a parameter of the graph, as it was when the graph had run."""
        return self.type == _PARAMETER

    @property
    def record(self) -> str:
        """The name of the record."""
        return record_name(self.type, self.op, self.number)

    @property
    def is_mislabelled(self) -> bool:
        """Return whether floats of two widths meet in the kernel, for which a CPU has none.

        MindSpore then runs the wider kernel there, and writes of its result as many bytes as the narrow type has, as if
        they were of that type. A cast that changes nothing is one of such a result.
        """
        tensors = [x for x in (*self.inputs.values(), *self.outputs.values()) if x.shape]
        floats = [x.dtype for x in tensors if "float" in x.dtype.lower()]
        if self.type == "Cast":
            return len(floats) == 2 and floats[0] == floats[1]
        return len(set(floats)) > 1

    @property
    def is_gradient(self) -> bool:
        """Return whether MindSpore derived the kernel for the gradient."""
        return _is_gradient(self.op)


def record_name(kind: str, op: str, number: int) -> str:
    """Return the name of the record of an execution, the n-th of its op, of a kernel of this type."""
    word = _PARAMETER if kind == _PARAMETER else "Kernel"
    return api_record(f"{word}.{op}.{number}", "backward" if _is_gradient(op) else "forward")


def _is_gradient(op: str) -> bool:
    return op.startswith(_GRADIENTS)


@dataclass(frozen=True)
class KernelDump(Dump):
    """A dump whose records are kernels; ``path`` is the file by which it goes, ``kernels`` has its records."""

    kernels: Mapping[str, Kernel]

    def body(self, name: str) -> Any:
        """Return a record. Raises RecordError where one of its files cannot be read, KeyError where there is none."""
        kernel = self.kernels[name]
        if kernel.problems:
            raise RecordError(name, kernel.problems[0])
        return _body(kernel)

    def is_recomputed(self, name: str) -> bool:
        """Return False: no kernel says that it is."""
        return False


def encoded(kernel: Kernel) -> msgspec.Raw:
    """Return a kernel as a record of ``dump.json``."""
    return msgspec.Raw(encode_record(_body(kernel)))


def _body(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as a record; a parameter is not a result of a call."""
    inputs, outputs = ({str(slot): leaf(x) for slot, x in side.items()} for side in (kernel.inputs, kernel.outputs))
    return {"parameters": {kernel.op: outputs}} if kernel.is_parameter else {"input": inputs, "output": outputs}


def leaf(element: TensorElement) -> dict[str, Any]:
    """Return a tensor as an entry of a record."""
    entry: dict[str, Any] = {"type": element.type, "dtype": element.dtype, "shape": [*element.shape]}
    for key, field in _FIELDS.items():
        value = getattr(element, field)
        if value is not None:
            entry[key] = value
    return entry


def unreadable(file: Path | str, error: Exception) -> str:
    """Return the message on a tensor's file that cannot be read, with the possible reason."""
    return f"{file}: incomplete, {error}; the run ended while it was written, or it was copied only in part"
