"""Record names: the keys of ``data`` in a dump.

An API call is ``{Type}.{api}.{call}.{direction}`` where ``api`` may be dotted (``Torch.linalg.norm.3.backward``);
a module call is ``Module.{attribute path}.{Class}.{direction}.{call}`` with the call number last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

Direction = Literal["forward", "backward"]

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
