"""One record of a dump, as data, and how it is decoded.

Elements are what a recorded Python value became in JSON. Spellings that differ between versions of msprobe
(``datapath`` and ``data_name``, ``torch.nn.parameter.Parameter``, extra finite extrema) end here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from msprobe_hooks.dump.json_fields import Number as Number
from msprobe_hooks.dump.json_fields import as_object, count, non_finite, refuse, require_possible, statistic
from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS, layout_of
from msprobe_hooks.dump.memory_layouts import Layout as Layout
from msprobe_hooks.errors import RecordError

#: The type of tensors without values, with which torch traces and compiles.
FAKE_TENSOR = "torch._subclasses.fake_tensor.FakeTensor"

TENSOR_TYPES = frozenset(
    {
        "torch.Tensor",
        "torch.nn.parameter.Parameter",
        "mindspore.Tensor",
        "numpy.ndarray",
        "torch.distributed.tensor.DTensor",
        FAKE_TENSOR,
        "torch.distributed._functional_collectives.AsyncCollectiveTensor",
        "torch.nested._internal.nested_tensor.NestedTensor",
        "torch._C._functorch.BatchedTensor",
        "torch._C._functorch.GradTrackingTensor",
        "BatchedTensor",
        "GradTrackingTensor",
    }
)

#: How deep the elements of a record may be nested, as deep as they are recorded. What is done with them recurses.
MAX_DEPTH = 100


_Size: TypeAlias = Annotated[int, Meta(ge=0)]
# Whole numbers of 64 bits: JSON allows those of more than 300 digits, which no tensor holds.
_Statistic: TypeAlias = float | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | bool

#: How ``dump.json`` calls a tensor's statistics, by their fields.
STATISTICS = {
    "max": "Max",
    "min": "Min",
    "mean": "Mean",
    "norm": "Norm",
    "finite_max": "Max_except_inf_nan",
    "finite_min": "Min_except_inf_nan",
}

#: How ``dump.json`` and `TensorElement` call the numbers of elements that are NaN, +inf and -inf.
NONFINITE_COUNTS = ("nan_count", "posinf_count", "neginf_count")


class TensorElement(msgspec.Struct, frozen=True, rename={**STATISTICS, "checksum": "md5"}):
    """A recorded tensor, with its statistics or the name of the file with its values, where they were taken.

    Attributes:
        type: The recorded type, such as ``torch.Tensor``.
        dtype: The dtype as recorded (``torch.float16``, ``Float16``).
        shape: The shape.
        max: The greatest element.
        min: The least element.
        mean: The mean of the elements.
        norm: The Euclidean norm.
        finite_max: The greatest finite element; only where infinities or NaN occurred.
        finite_min: The least finite element; only where infinities or NaN occurred.
        nan_count: How many elements are NaN; the three counts are known only where this project's hooks wrote them.
        posinf_count: How many elements are +inf.
        neginf_count: How many elements are -inf.
        requires_grad: Whether it required a gradient.
        checksum: The checksum of its bytes.
        data_name: The name of its file.
        layout: How it lay in memory; None where that is unknown or contiguous.
        nnz: How many elements a sparse COO tensor specified; None for any other.
        is_coalesced: Whether those had a place of their own each, in order.
    """

    type: str
    dtype: str
    shape: tuple[_Size, ...]
    max: _Statistic | None = None
    min: _Statistic | None = None
    mean: _Statistic | None = None
    norm: _Statistic | None = None
    finite_max: _Statistic | None = None
    finite_min: _Statistic | None = None
    nan_count: _Size | None = None
    posinf_count: _Size | None = None
    neginf_count: _Size | None = None
    requires_grad: bool = False
    checksum: str | None = None
    data_name: str | None = None
    layout: Layout | None = None
    nnz: _Size | None = None
    is_coalesced: bool = False


class ValueElement(msgspec.Struct, frozen=True):
    """A recorded plain value with the name of its type: ``int``, ``slice``, ``torch.dtype``, ``torch.Size`` ..."""

    type: str
    value: Any


class MappingElement(msgspec.Struct, frozen=True):
    """A recorded dict, namedtuple or dataclass; an empty one may also be a positional dtype or device."""

    items: dict[str, Element]


Leaf: TypeAlias = TensorElement | ValueElement
Element: TypeAlias = Leaf | MappingElement | list["Element"] | None
Elements: TypeAlias = list[Element] | dict[str, Element]


#: What the details of a record say of an input that was overwritten between two calls.
OVERWRITTEN = "overwritten before"


class ForwardRecord(msgspec.Struct, frozen=True):
    """The forward direction of an API call or of a module call (then with its parameters).

    Attributes:
        name: The name of the record.
        args: The positional arguments.
        kwargs: The keyword arguments by name.
        output: The results.
        parameters: The module's parameters by name.
        is_recompute: Whether activation checkpointing made the call again.
        exception: The exception of a call that raised one.
        containers: The classes of lists and mappings at some paths, such as ``input.1`` or ``output``.
        settings: The attributes of the called primitive of MindSpore by name; None where they were not recorded.
        overwritten: The paths of inputs that were overwritten since they were measured, such as ``input.0``.
    """

    name: str
    args: list[Element]
    kwargs: dict[str, Element]
    output: list[Element]
    parameters: dict[str, Element]
    is_recompute: bool = False
    exception: str | None = None
    containers: dict[str, str] = {}
    settings: dict[str, Any] | None = None
    overwritten: frozenset[str] = frozenset()


class BackwardRecord(msgspec.Struct, frozen=True):
    """The backward direction of a call.

    Attributes:
        name: The name of the record.
        grad_outputs: The gradients that arrived for the outputs.
        grad_inputs: The gradients passed on to the inputs.
    """

    name: str
    grad_outputs: list[Element]
    grad_inputs: list[Element]


def walk(elements: Elements, path: str) -> Iterator[tuple[str, Leaf]]:
    """Yield every tensor and plain value among the elements with its path, in recorded order; nulls are left out.

    ``path`` is that of the elements: below ``input`` they are ``input.0``, ``input.1.weight`` ...
    """
    for key, element in elements.items() if isinstance(elements, dict) else enumerate(elements):
        if isinstance(element, (TensorElement, ValueElement)):
            yield f"{path}.{key}", element
        elif element is not None:
            members = element.items if isinstance(element, MappingElement) else element
            yield from walk(members, f"{path}.{key}")


def walk_tensors(elements: Elements, path: str = "") -> Iterator[tuple[str, TensorElement]]:
    """Yield every tensor among the elements with its path, as ``walk`` does."""
    return ((place, leaf) for place, leaf in walk(elements, path) if isinstance(leaf, TensorElement))


def tensors_of(elements: Elements) -> list[TensorElement]:
    """Return every tensor among the elements, nested ones included, in recorded order."""
    tensors: list[TensorElement] = []
    for element in elements.values() if isinstance(elements, dict) else elements:
        if isinstance(element, TensorElement):
            tensors.append(element)
        elif isinstance(element, MappingElement):
            tensors += tensors_of(element.items)
        elif isinstance(element, list):
            tensors += tensors_of(element)
    return tensors


def forward_record(name: str, body: object) -> ForwardRecord:
    """Build a forward record from its decoded JSON.

    Raises RecordError with the JSON path of whatever does not fit.
    """
    path = record_path(name)
    fields = as_object(body, path)
    details, settings = _details(fields, f"{path}.details")
    exception = fields.get("exception")
    args = _array_field(fields, "input_args", path)
    kwargs = _object_field(fields, "input_kwargs", path)
    return ForwardRecord(
        name=name,
        args=[_restored(element, f"input.{i}", details) for i, element in enumerate(args)] if details else args,
        kwargs={key: _restored(element, f"kwargs.{key}", details) for key, element in kwargs.items()},
        output=_array_field(fields, "output", path),
        parameters=_object_field(fields, "parameters", path),
        is_recompute=bool(fields.get("is_recompute", False)),
        exception=exception if isinstance(exception, str) else None,
        containers={place: detail["container"] for place, detail in details.items() if "container" in detail},
        settings=settings,
        overwritten=frozenset(place for place, detail in details.items() if detail.get("values") == OVERWRITTEN),
    )


def _details(fields: Mapping[str, Any], path: str) -> tuple[Mapping[str, Mapping[str, Any]], dict[str, Any] | None]:
    """Return what is kept apart from the elements by their places (of a value its type, of a container its class).

    What the called object had been made with comes second, None where that is not said.
    """
    details = dict(as_object(fields.get("details") or {}, path))
    settings = details.pop("settings", None)
    if settings is not None:
        settings = dict(as_object(settings, f"{path}.settings"))
    for place, detail in details.items():
        words = {"type"} if "value" in as_object(detail, f"{path}.{place}") else set()
        for key in words | ({"container"} & detail.keys()):
            if not isinstance(detail.get(key), str):
                refuse(f"{path}.{place}.{key}", "a type's name", detail.get(key))
    return details, settings


def _restored(element: Element, place: str, details: Mapping[str, Mapping[str, Any]]) -> Element:
    """Restore what msprobe's spelling of an element loses and this project's recorder keeps apart."""
    detail = details.get(place)
    if detail is not None and "value" in detail:
        return ValueElement(detail["type"], detail["value"])
    if isinstance(element, list):
        return [_restored(item, f"{place}.{i}", details) for i, item in enumerate(element)]
    if isinstance(element, MappingElement):
        return MappingElement({key: _restored(item, f"{place}.{key}", details) for key, item in element.items.items()})
    return element


def backward_record(name: str, body: object) -> BackwardRecord:
    """Build a backward record from its decoded JSON.

    Raises RecordError with the JSON path of whatever does not fit.
    """
    path = record_path(name)
    fields = as_object(body, path)
    return BackwardRecord(
        name=name,
        grad_outputs=_array_field(fields, "input", path),
        grad_inputs=_array_field(fields, "output", path),
    )


def record_path(name: str) -> str:
    """Return where a record is in its file, as a JSON path."""
    return f'$.data["{name}"]'


def _array_field(fields: Mapping[str, object], key: str, path: str) -> list[Element]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        refuse(f"{path}.{key}", "an array", value)
    return [_element(item, f"{path}.{key}[{i}]", 1) for i, item in enumerate(value)]


def _object_field(fields: Mapping[str, object], key: str, path: str) -> dict[str, Element]:
    value = fields.get(key)
    if value is None:
        return {}
    return {name: _element(item, f"{path}.{key}.{name}", 1) for name, item in as_object(value, f"{path}.{key}").items()}


def _element(value: object, path: str, depth: int) -> Element:
    if value is None:
        return None
    if isinstance(value, dict) and isinstance(kind := value.get("type"), str):
        if kind in TENSOR_TYPES:
            return _tensor(kind, value, path)
        return ValueElement(kind, _value(kind, value, path))
    if depth > MAX_DEPTH:
        raise RecordError(path, f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [_element(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    members = as_object(value, path)
    return MappingElement({key: _member(item, f"{path}.{key}", depth) for key, item in members.items()})


def _member(value: object, path: str, depth: int) -> Element:
    # P2POp and its like write bare strings and numbers next to their elements.
    if isinstance(value, (str, int, float)):
        return ValueElement(type(value).__name__, value)
    return _element(value, path, depth + 1)


def _value(kind: str, fields: Mapping[str, object], path: str) -> object:
    value = fields.get("format") if kind == "torch.memory_format" else fields.get("value")
    if kind == "float" and isinstance(value, str):
        number = non_finite(value)
        return refuse(f"{path}.value", "a number", value) if number is None else number
    return value if "value" in fields or value is not None else dict(fields)


def _tensor(kind: str, fields: Mapping[str, object], path: str) -> TensorElement:
    if "datapath" not in fields and "layout" not in fields:
        # Nearly all are spelled as the fields say, which msgspec sees in one step.
        with suppress(msgspec.ValidationError):
            tensor = msgspec.convert(fields, TensorElement)
            require_possible(tensor.shape, f"{path}.shape")
            if fields.keys().isdisjoint(LAYOUT_KEYS):
                return tensor
            return msgspec.structs.replace(tensor, layout=layout_of(fields, tensor.shape, path))
    dtype, shape = fields.get("dtype"), fields.get("shape")
    if not isinstance(dtype, str):
        refuse(f"{path}.dtype", "a dtype's name", dtype)
    if not isinstance(shape, list) or not set(map(type, shape)) <= {int} or min(shape, default=0) < 0:
        refuse(f"{path}.shape", "an array of sizes", shape)
    require_possible(shape, f"{path}.shape")
    data_name = fields.get("datapath", fields.get("data_name"))
    checksum = fields.get("md5")
    nans, positive, negative = (count(fields, key, path) for key in NONFINITE_COUNTS)
    return TensorElement(
        type=kind,
        dtype=dtype,
        shape=tuple(shape),
        **{field: statistic(fields, key, path) for field, key in STATISTICS.items()},
        nan_count=nans,
        posinf_count=positive,
        neginf_count=negative,
        requires_grad=fields.get("requires_grad") is True,
        checksum=checksum if isinstance(checksum, str) else None,
        data_name=data_name if isinstance(data_name, str) else None,
        layout=layout_of(fields, shape, path),
        nnz=count(fields, "nnz", path),
        is_coalesced=fields.get("is_coalesced") is True,
    )


_SHAPE = re.compile(rb'"shape": ?\[([\d,\s]*)\]')


def recorded_elements(record: bytes) -> float:
    """Return the number of elements of all tensors of an undecoded record."""
    return sum(_elements(match[1]) for match in _SHAPE.finditer(record))


def _elements(shape: bytes) -> float:
    # As floats, which also hold the product of sizes that no tensor has.
    sizes = [float(size) for size in shape.split(b",") if size.strip()]
    return 0.0 if 0 in sizes else math.prod(sizes)
