"""Effects of APIs on memory layouts, and forward records reduced to tensors' entries and plain arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msprobe_hooks.dump.derived_layouts import known_memory as memory
from msprobe_hooks.dump.derived_layouts.known_memory import Known, NotAViewError
from msprobe_hooks.dump.schema import MAX_DEPTH, TENSOR_TYPES

#: An entry of a tensor, as decoded from JSON.
Entry = Mapping[str, Any]

_STATISTICS = ("Max", "Min", "Mean", "Norm")
_FLOATS = ("float", "Float", "bfloat", "BFloat")
_COMPLEX = ("complex", "Complex")
# What is less than this fraction of the largest magnitude's square comes from rounding the statistics.
_LEAST_SPREAD = 1e-5


class UnreadableArgumentError(Exception):
    """An argument is none of the plain values that views take."""


def is_entry(value: object) -> bool:
    """Return whether a value is the entry of a tensor."""
    if not isinstance(value, dict) or "shape" not in value:
        return False
    kind = value.get("type")
    return isinstance(kind, str) and kind in TENSOR_TYPES


def entries(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of tensors in part of a record, with their paths."""
    if is_entry(value):
        yield path, value
    elif depth <= MAX_DEPTH and isinstance(value, list):
        for place, item in enumerate(value):
            yield from entries(item, f"{path}.{place}", depth + 1)
    elif depth <= MAX_DEPTH and isinstance(value, dict) and not isinstance(value.get("type"), str):
        for key, item in value.items():
            yield from entries(item, f"{path}.{key}", depth + 1)


def shape_of(entry: Entry) -> tuple[int, ...] | None:
    """Return the shape of a tensor, None for what is no shape."""
    shape = entry["shape"]
    if not isinstance(shape, list) or not {*map(type, shape)} <= {int}:
        return None
    return tuple(shape) if not shape or (min(shape) >= 0 and max(shape) < 2**63) else None


def content_of(entry: Entry) -> tuple[int, int] | None:
    """Return what a tensor's content is known by, and what it is known by in whichever order of its dimensions.

    None for a content that another tensor may have by chance: without statistics, of few values, or of whole numbers.
    """
    shape, dtype = shape_of(entry), entry.get("dtype")
    # Those of complex numbers are of their magnitudes, without a norm.
    numbers: list[Any] = [entry.get(name) for name in _STATISTICS[: 3 if is_complex(entry) else 4]]
    checksum = entry.get("md5")
    if shape is None or not isinstance(dtype, str) or not dtype.removeprefix("torch.").startswith(_FLOATS + _COMPLEX):
        return None
    if not all(map(_is_number, numbers)) or not _is_distinctive(math.prod(shape), *numbers):
        return None
    if not isinstance(checksum, str):
        checksum = None
        wide = [size for size in shape if size != 1]
        if len({*wide}) < len(wide):
            # Dimensions of one size could have been exchanged in a call that is not recorded.
            return None
    family = (dtype, *sorted(size for size in shape if size != 1), *numbers)
    return hash((shape, dtype, checksum, *numbers)), hash(family)


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def is_complex(entry: Entry) -> bool:
    """Return whether a tensor has complex numbers."""
    return str(entry.get("dtype")).removeprefix("torch.").startswith(_COMPLEX)


def _is_distinctive(count: int, greatest: float, least: float, mean: float, norm: float | None = None) -> bool:
    """Return whether a tensor has more than two different values; without a norm, whether its mean shows that."""
    largest = max(abs(greatest), abs(least))
    scale = largest * largest
    if not count or not 0 < scale < math.inf or greatest == least:
        return False
    if norm is None:
        # So many of two values are the greater one: a whole number, but for rounding.
        share = count * (mean - least) / (greatest - least)
        return abs(share - round(share)) > _LEAST_SPREAD * count
    # The mean of (greatest - x) (x - least), which is 0 where no value lies between these two.
    spread = mean * (greatest + least) - norm * norm / count - greatest * least
    return spread > _LEAST_SPREAD * scale


def plain(value: Any) -> Any:
    """Return a plain argument of a view as Python has it. Raises UnreadableArgumentError for any other."""
    if value is None:
        return None
    if isinstance(value, list):
        return [plain(item) for item in value]
    fields: Mapping[str, Any] = value if isinstance(value, dict) else {}
    kind: Any = fields.get("type")
    inner: Any = fields.get("value")
    if kind == "int" and type(inner) is int:
        return inner
    if kind == "bool" and isinstance(inner, bool):
        return inner
    if kind == "str" and isinstance(inner, str):
        return inner
    if kind == "torch.Size" and _are_whole(inner):
        return list(inner)
    if kind == "slice" and isinstance(inner, list) and len(inner) == 3 and _are_whole(inner, also=type(None)):
        return slice(*inner)
    if kind == "ellipsis":
        return ...
    if kind == "torch.memory_format" and isinstance(fields.get("format"), str):
        return fields["format"]
    raise UnreadableArgumentError


def _are_whole(values: object, also: type = int) -> bool:
    return isinstance(values, (list, tuple)) and all(type(item) in (int, also) for item in values)


def wide_arguments(arguments: Sequence[Any]) -> Sequence[Any]:
    """Return sizes or dimensions that were passed one by one or as one list."""
    return arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list) else arguments


_MISSING = object()


class CallArguments:
    """The plain arguments of a call after its first tensor; None in place of other tensors."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def one(self, place: int, name: str, default: Any = _MISSING) -> Any:
        """Return an argument by its place or its name. Raises NotAViewError where it is needed and missing."""
        value = self.args[place] if place < len(self.args) else self.kwargs.get(name, default)
        if value is _MISSING:
            raise NotAViewError
        return value

    def many(self, *names: str) -> Sequence[Any]:
        """Return an argument that is passed one by one, as a list or by one of these names."""
        named = next((self.kwargs[name] for name in names if name in self.kwargs), None)
        values = wide_arguments(self.args) if self.args else named
        if isinstance(values, int):
            return [values]
        if not isinstance(values, (list, tuple)):
            raise NotAViewError
        return values


Result = Known | None | Sequence[Known]
View = Callable[[Known, CallArguments], Result]


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _matrix(x: Known, arguments: CallArguments) -> Known:
    if len(x.shape) > 2:
        raise NotAViewError
    return memory.permuted(x, list(range(len(x.shape)))[::-1])


def _transpose(x: Known, arguments: CallArguments) -> Known:
    first = arguments.one(0, "dim0", arguments.kwargs.get("axis0", _MISSING))
    return memory.transposed(x, first, arguments.one(1, "dim1", arguments.kwargs.get("axis1", _MISSING)))


def _move(x: Known, arguments: CallArguments) -> Known:
    source, destination = arguments.one(0, "source"), arguments.one(1, "destination")
    return memory.with_moved_dims(x, _as_list(source), _as_list(destination))


def _squeeze(x: Known, arguments: CallArguments) -> Known:
    dim = arguments.one(0, "dim", None)
    return memory.squeezed(x, None if dim is None else _as_list(dim))


def _flatten(x: Known, arguments: CallArguments) -> Known | None:
    dims = max(len(x.shape), 1)
    first = memory.place_of(arguments.one(0, "start_dim", 0), dims)
    last = memory.place_of(arguments.one(1, "end_dim", -1), dims)
    if first >= last:
        return x if x.shape else None
    sizes = (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    return memory.viewed(x, sizes)


def _unflatten(x: Known, arguments: CallArguments) -> Known | None:
    dim = memory.place_of(arguments.one(0, "dim"), len(x.shape))
    sizes = _as_list(arguments.one(1, "sizes"))
    return memory.viewed(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def _split(x: Known, arguments: CallArguments) -> list[Known]:
    dim = memory.place_of(arguments.one(1, "dim", 0), len(x.shape))
    size, whole = arguments.one(0, "split_size_or_sections", arguments.kwargs.get("split_size", _MISSING)), x.shape[dim]
    if isinstance(size, list):
        return _parts(x, dim, size)
    if type(size) is not int or size < 1:
        raise NotAViewError
    return _parts(x, dim, [min(size, whole - start) for start in range(0, max(whole, 1), size)])


def _chunk(x: Known, arguments: CallArguments) -> list[Known]:
    dim = memory.place_of(arguments.one(1, "dim", 0), len(x.shape))
    chunks = arguments.one(0, "chunks")
    if type(chunks) is not int or chunks < 1 or not x.shape[dim]:
        raise NotAViewError
    size = -(-x.shape[dim] // chunks)
    return _parts(x, dim, [min(size, x.shape[dim] - start) for start in range(0, x.shape[dim], size)])


def _parts(x: Known, dim: int, sizes: Sequence[Any]) -> list[Known]:
    parts, start = list[Known](), 0
    for size in sizes:
        parts.append(memory.narrowed(x, dim, start, size))
        start += size
    return parts


def _unbind(x: Known, arguments: CallArguments) -> list[Known]:
    dim = memory.place_of(arguments.one(0, "dim", 0), len(x.shape))
    return [memory.selected(x, dim, place) for place in range(x.shape[dim])]


def _index(x: Known, arguments: CallArguments) -> Known:
    return memory.indexed(x, _as_list(arguments.one(0, "index")))


def _narrow(x: Known, arguments: CallArguments) -> Known:
    return memory.narrowed(x, arguments.one(0, "dim"), arguments.one(1, "start"), arguments.one(2, "length"))


#: Calls whose result is a view of their first tensor, whatever its strides are.
VIEWS: Mapping[str, View] = {
    "t": _matrix,
    "T": _matrix,
    "numpy_T": lambda x, arguments: memory.permuted(x, list(range(len(x.shape)))[::-1]),
    "mT": lambda x, arguments: memory.transposed(x, -2, -1),
    "H": lambda x, arguments: memory.flipped(_matrix(x, arguments), conj=True),
    **dict.fromkeys(("mH", "adjoint"), lambda x, arguments: memory.flipped(memory.transposed(x, -2, -1), conj=True)),
    **dict.fromkeys(("conj", "_conj"), lambda x, arguments: memory.flipped(x, conj=True)),
    "_neg_view": lambda x, arguments: memory.flipped(x, neg=True),
    "imag": lambda x, arguments: memory.imaginary(x),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _transpose),
    "permute": lambda x, arguments: memory.permuted(x, arguments.many("dims")),
    **dict.fromkeys(("movedim", "moveaxis"), _move),
    "expand": lambda x, arguments: memory.expanded(x, arguments.many("size", "sizes")),
    "broadcast_to": lambda x, arguments: memory.expanded(x, arguments.many("size", "shape")),
    "unsqueeze": lambda x, arguments: memory.unsqueezed(x, arguments.one(0, "dim")),
    "squeeze": _squeeze,
    "view": lambda x, arguments: memory.viewed(x, arguments.many("size", "shape")),
    "unflatten": _unflatten,
    "narrow": _narrow,
    "select": lambda x, arguments: memory.selected(x, arguments.one(0, "dim"), arguments.one(1, "index")),
    "__getitem__": _index,
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "chunk": _chunk,
    "unbind": _unbind,
    "detach": lambda x, arguments: x,
    "requires_grad_": lambda x, arguments: x,
}

#: Views where the strides allow them, else copies that are contiguous.
RESHAPES: Mapping[str, Callable[[Known, CallArguments], Known | None]] = {
    "reshape": lambda x, arguments: memory.viewed(x, arguments.many("shape")),
    "flatten": _flatten,
}

#: Views by the shape of their second tensor.
SHAPED: Mapping[str, Callable[[Known, tuple[int, ...]], Known | None]] = {
    "expand_as": memory.expanded,
    "view_as": memory.viewed,
}

#: In-place calls after which a tensor lies in memory in another way.
MOVED_IN_PLACE = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ resize_ resize_as_ as_strided_ set_ sparse_resize_".split()
)

#: Calls whose result is contiguous and has a storage of its own, whatever they are given.
CONTIGUOUS = frozenset(
    "zeros ones empty full rand randn arange linspace eye mm bmm linear embedding layer_norm".split()
)

#: Calls that compute their result element by element: contiguous where their first tensor is and has its shape.
ELEMENTWISE = frozenset(
    """
    add sub mul div __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __neg__ __pow__ pow
    true_divide neg abs exp log sqrt rsqrt sin cos tanh sigmoid relu gelu silu softplus erf square reciprocal
    elu leaky_relu selu mish hardswish addcmul addcdiv lerp maximum minimum softmax log_softmax masked_fill
    zeros_like ones_like empty_like full_like rand_like randn_like
    """.split()
)

#: Calls that may give their first tensor itself, or else a copy that lies as it does where that is contiguous.
MAYBE_ITSELF = frozenset(
    "to type float half bfloat16 double type_as cpu cuda npu dropout clamp contiguous clone".split()
)

#: Of these, calls that may be asked for a memory format.
TAKE_FORMATS = frozenset({"contiguous", "to", "clone"})
