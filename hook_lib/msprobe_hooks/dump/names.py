"""Names in a dump: the keys of ``data``, and one name for a dtype that PyTorch, MindSpore and numpy call by several.

An API call is ``{Type}.{api}.{call}.{direction}`` where ``api`` may be dotted (``Torch.linalg.norm.3.backward``);
a module call is ``Module.{attribute path}.{Class}.{direction}.{call}`` with the call number last. The gradients of a
module's parameters are in ``Module.{attribute path}.{Class}.parameters_grad``, in some dumps with a number behind it.

The words of a name are read from its end, because an API, an attribute or a class may be called ``backward``. What is
asked of 200 000 names (twins, directions, splitting) never raises: a name outside the grammar is its own twin and has
no direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

Direction = Literal["forward", "backward"]

PARAMETERS_GRAD: Final = "parameters_grad"

_WRITING_DUNDERS = {"__setitem__"} | {
    f"__i{name}__" for name in "add sub mul div truediv floordiv mod pow matmul and or xor lshift rshift".split()
}

# Spellings of one operation that a recorder cannot always distinguish: what an operator calls, its reflected form where
# the operands commute, and functions that PyTorch offers under two names. The value is the name they share.
_ALIASES = {
    "Tensor.__add__": "Tensor.add",
    "Tensor.__radd__": "Tensor.add",
    "Tensor.__sub__": "Tensor.sub",
    "Tensor.__mul__": "Tensor.mul",
    "Tensor.__rmul__": "Tensor.mul",
    "Tensor.__div__": "Tensor.div",
    "Tensor.__truediv__": "Tensor.div",
    "Tensor.__rdiv__": "Tensor.__rtruediv__",
    "Tensor.__mod__": "Tensor.remainder",
    "Tensor.__pow__": "Tensor.pow",
    "Tensor.__matmul__": "Tensor.matmul",
    "Tensor.__gt__": "Tensor.gt",
    "Tensor.__ge__": "Tensor.ge",
    "Tensor.__lt__": "Tensor.lt",
    "Tensor.__le__": "Tensor.le",
    "Tensor.__ne__": "Tensor.ne",
    "Tensor.__eq__": "Tensor.eq",
    "Tensor.__neg__": "Tensor.neg",
    "Tensor.__abs__": "Tensor.abs",
    "Tensor.__iadd__": "Tensor.add_",
    "Tensor.__isub__": "Tensor.sub_",
    "Tensor.__imul__": "Tensor.mul_",
    "Tensor.__idiv__": "Tensor.div_",
    "Tensor.__itruediv__": "Tensor.div_",
    "Tensor.__imod__": "Tensor.remainder_",
    "Tensor.__ipow__": "Tensor.pow_",
    "Tensor.__ifloordiv__": "Tensor.floor_divide_",
    "Torch.lstm": "VF.lstm",
    "Torch.spmm": "Torch.mm",
    "Torch.dsmm": "Torch.mm",
} | {
    f"Torch.{name}": f"Functional.{name}"
    for name in (
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc bilinear channel_shuffle"
        " cosine_similarity pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu celu_ rrelu_ selu_ threshold_"
        " avg_pool1d adaptive_avg_pool1d hardshrink relu_"
    ).split()
}

MODULE_TYPES = frozenset({"Module", "Cell"})

_DIRECTIONS = frozenset({"forward", "backward"})
_ABOUT = _DIRECTIONS | {PARAMETERS_GRAD}

# MindSpore's names are torch's with capitals, but for these, which also lose an underscore.
_SPELLINGS = {
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0fnu": "float8_e8m0fnu",
    "bool_": "bool",
}

# What has another capital than its first letter in MindSpore.
_CAPITALS = {"bfloat16": "BFloat16", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}


@dataclass(frozen=True, slots=True)
class ApiName:
    """The name of one direction of an API call.

    Attributes:
        type: The first part, such as ``Torch`` or ``Functional``.
        api: The function, such as ``linalg.norm``.
        call: The number of the call, from 0.
        direction: ``forward`` or ``backward``.
    """

    type: str
    api: str
    call: int
    direction: Direction

    @property
    def qualified_api(self) -> str:
        """``{Type}.{api}``, such as ``Torch.linalg.norm``."""
        return f"{self.type}.{self.api}"

    @property
    def key(self) -> str:
        """Return what the two directions of a call share: the name without its direction."""
        return f"{self.type}.{self.api}.{self.call}"

    @property
    def forward(self) -> str:
        """The name of the call's forward record."""
        return api_record(self.key, "forward")

    @property
    def backward(self) -> str:
        """The name of the call's backward record."""
        return api_record(self.key, "backward")

    def __str__(self) -> str:
        return api_record(self.key, self.direction)


# The caller that handles a record asks several times in a row.
@lru_cache(64)
def parse_api_name(name: str) -> ApiName:
    """Read the name of an API record.

    Args:
        name: The name, such as ``Torch.linalg.norm.3.forward``.

    Returns:
        Its parts.

    Raises:
        ValueError: The name has another form; the text shows the expected one.
    """
    key, direction = split_direction(name)
    front, _, call = key.rpartition(".")
    type_, _, api = front.partition(".")
    if not (type_ and api and call.isascii() and call.isdigit() and direction):
        raise ValueError(f"{name!r} is not of the form Type.api.number.forward or Type.api.number.backward")
    return ApiName(type_, api, int(call), direction)


def api_record(key: str, direction: Direction) -> str:
    """Return the name of one direction of an API call, from what both directions share."""
    return f"{key}.{direction}"


def split_direction(name: str) -> tuple[str, Direction | Literal[""]]:
    """Split the name of an API record into what both directions share and the direction.

    Any other name, a module's among them, comes back whole and with no direction.
    """
    key, _, last = name.rpartition(".")
    return (key, last) if last in _DIRECTIONS else (name, "")  # type: ignore[return-value]


def is_forward_api(name: str) -> bool:
    """Return whether a record is the forward direction of an API call."""
    # A module's record ends in a number.
    return name.endswith(".forward") and not is_module_name(name)


def is_backward_api(name: str) -> bool:
    """Return whether a record is the backward direction of an API call."""
    return name.endswith(".backward") and not is_module_name(name)


class ModuleName(NamedTuple):
    """The parts of a module's record name, as texts; what a name lacks is empty.

    ``path`` is the attribute path (``layers.0.fc``), ``rest`` what follows the class, with its dot: ``.forward.0``,
    ``.parameters_grad``.
    """

    type: str
    path: str
    class_name: str
    rest: str

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, self[:3]))}{self.rest}"


def is_module_name(name: str) -> bool:
    """Return whether a record is about a module (its call or its parameters' gradients) and not about an API."""
    return name.partition(".")[0] in MODULE_TYPES


def split_module(name: str) -> ModuleName:
    """Split the name of a module's record."""
    called, rest = split_called(name)
    front, _, class_name = called.rpartition(".")
    type_, _, path = front.partition(".")
    return ModuleName(type_, path, class_name, rest)


def split_called(name: str) -> tuple[str, str]:
    """Split a record's name into what was called and the rest with its dot.

    What was called is ``Type.api`` or ``Module.path.Class``, the rest ``.3.forward``, ``.forward.0`` or
    ``.parameters_grad``.
    """
    head, _, last = name.rpartition(".")
    called = head if last == PARAMETERS_GRAD else head.rpartition(".")[0]
    return called, name[len(called) :]


def is_in_place(called: str) -> bool:
    """Return whether ``Type.api`` says that it writes over its first argument: add_, __iadd__, __setitem__."""
    parts = called.split(".")[1:]
    return any(part in _WRITING_DUNDERS or (part.endswith("_") and not part.endswith("__")) for part in parts)


def direction_of(name: str) -> Literal["forward", "backward", "parameters_grad", ""]:
    """Return what a record of an API or a module is about; empty where its name does not say it."""
    # Most names are of APIs, and this is asked of every one.
    if name.endswith(".forward"):
        return "forward"
    if name.endswith(".backward"):
        return "backward"
    head, _, last = name.rpartition(".")
    word = head.rpartition(".")[2] if last.isdecimal() else last
    return word if word in _ABOUT else ""  # type: ignore[return-value]


def is_forward(name: str) -> bool:
    """Return whether a record is the forward direction of a call, of an API or of a module."""
    return name.endswith(".forward") or direction_of(name) == "forward"


def is_distributed(name: str) -> bool:
    """Return whether a record, or what was called (``Type.api``), is of a framework's communication between ranks."""
    return name.startswith(("Distributed.", "MintDistributed."))


def is_communication(name: str) -> bool:
    """Return whether a record is the forward direction of a communication between ranks."""
    return is_distributed(name) and is_forward(name)


def is_parameters_grad(name: str) -> bool:
    """Return whether a record holds the gradients of a module's parameters, which no single call has."""
    return PARAMETERS_GRAD in name and is_module_name(name) and direction_of(name) == PARAMETERS_GRAD


def forward_of(name: str) -> str:
    """Return the name of the forward record of the same call, of an API or of a module.

    Numbered gradients of parameters belong to the call of their number; without a number, and where no direction is
    in the name, it comes back as it is.
    """
    if name.endswith(".forward"):
        return name
    if name.endswith(".backward"):
        return f"{name[:-8]}forward"
    return _of_module_call(name, "forward")


def backward_of(name: str) -> str:
    """Return the name of the backward record of the same call, as ``forward_of`` does for the forward one."""
    head, _, last = name.rpartition(".")
    if last == "forward":
        return f"{head}.backward"
    # Recorders ask it of the module around every call.
    if head.endswith(".forward") and last.isdecimal():
        return f"{head[:-7]}backward.{last}"
    return name if last == "backward" else _of_module_call(name, "backward")


def _of_module_call(name: str, direction: Direction) -> str:
    head, _, call = name.rpartition(".")
    front, dot, about = head.rpartition(".")
    return f"{front}.{direction}.{call}" if dot and about in _ABOUT and call.isdecimal() else name


def shared_name(qualified_api: str) -> str:
    """Return the name that all spellings of one operation share: ``Tensor.__add__`` and ``Tensor.add`` are the same."""
    return _ALIASES.get(qualified_api, qualified_api)


def shared_record(name: str) -> str:
    """Return a record's name with the spelling of its API that all spellings share."""
    called = name.rpartition(".")[0].rpartition(".")[0]
    return f"{_ALIASES.get(called, called)}{name[len(called) :]}"


def mindspore_dtype_name(name: str) -> str:
    """Return MindSpore's name of a dtype of torch: ``BFloat16`` for torch.bfloat16, ``Float8E4M3FN``."""
    plain = name.removeprefix("torch.")
    if plain.startswith("float8_"):
        return "Float8" + plain.removeprefix("float8_").upper()
    return _CAPITALS.get(plain, plain.capitalize())


def plain_dtype(name: str) -> str:
    """Return torch's name of a recorded dtype without ``torch.``: ``bfloat16`` for BFloat16 and torch.bfloat16.

    A dtype that torch lacks is in small letters.
    """
    plain = name.rpartition(".")[2].lower()
    return _SPELLINGS.get(plain, plain)


#: Floating-point dtypes by their plain names, from coarse to fine.
FLOAT_DTYPES: Final = ("float8", "bfloat16", "float16", "float32", "float64")
_REAL_DTYPES = {
    "complex32": "float16",
    "complex64": "float32",
    "complex128": "float64",
    "float": "float32",
    "half": "float16",
}


def float_dtype(dtype: str) -> str | None:
    """Return the floating-point dtype by its plain name (that of the parts of a complex one), None for others."""
    name = plain_dtype(dtype)
    name = _REAL_DTYPES.get(name, name)
    if name.startswith("float8"):
        return "float8"
    return name if name in FLOAT_DTYPES else None


def coarser(a: str, b: str) -> str:
    """Return the one of two floating-point dtypes, by their plain names, that has fewer significant bits."""
    return min(a, b, key=FLOAT_DTYPES.index)


def finer(a: str, b: str) -> str:
    """Return the one of two floating-point dtypes, by their plain names, that has more significant bits."""
    return max(a, b, key=FLOAT_DTYPES.index)
