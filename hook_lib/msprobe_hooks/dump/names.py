"""Record names: the keys of ``data`` in a dump.

An API call is ``{Type}.{api}.{call}.{direction}`` where ``api`` may be dotted (``Torch.linalg.norm.3.backward``);
a module call is ``Module.{attribute path}.{Class}.{direction}.{call}`` with the call number last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

Direction = Literal["forward", "backward"]

# Spellings of one operation that a recorder cannot always tell apart: what an operator calls, its reflected form where
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


@dataclass(frozen=True, slots=True)
class ApiName:
    """The name of one direction of an API call."""

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
        """What the two directions of a call share: the name without its direction."""
        return f"{self.type}.{self.api}.{self.call}"

    def __str__(self) -> str:
        return f"{self.key}.{self.direction}"


def is_module_name(name: str) -> bool:
    """Tell whether a record is about a module (its call or its parameters' gradients) and not about an API."""
    return name.partition(".")[0] in MODULE_TYPES


def shared_name(qualified_api: str) -> str:
    """Return the name that all spellings of one operation share: ``Tensor.__add__`` and ``Tensor.add`` are the same."""
    return _ALIASES.get(qualified_api, qualified_api)


def backward_of(module_name: str) -> str:
    """Return the backward name of a module call whose forward name is given."""
    head, _, call = module_name.rpartition(".")
    return f"{head.removesuffix('.forward')}.backward.{call}"


def parse_api_name(name: str) -> ApiName:
    """Read the name of an API record.

    Raises ValueError, whose text says what the grammar wants, where the name does not follow it.
    """
    head, _, direction = name.rpartition(".")
    front, _, call = head.rpartition(".")
    type_, _, api = front.partition(".")
    if not (type_ and api and call.isascii() and call.isdigit() and direction in ("forward", "backward")):
        raise ValueError(f"{name!r} is not of the form Type.api.number.forward or Type.api.number.backward")
    return ApiName(type_, api, int(call), cast("Direction", direction))
