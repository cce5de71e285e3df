"""A statement of a graph's text: what a node computes, what it is given, and in which shapes.

%15(equiv_x) = PrimFunc_Transpose(%14, (I64(0), I64(2), I64(1))) primitive_attrs: {checkpoint: Bool(1)} ...
    : (<Tensor[Float32], (2, 6, 16)>, <Tuple[Int64*3], ...>) -> (<Tensor[Float32], (2, 16, 6)>)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Shape: TypeAlias = tuple[int, ...]

_HEAD = re.compile(r"\s*(?:%\w+\([^()]*\) = )?(?:PrimFunc_)?(?P<type>\w+)\(")
_ATTRIBUTES: Final = "primitive_attrs: {"
_SHAPES = re.compile(r"^\s*: \(", re.MULTILINE)
_TENSOR = re.compile(r"<(?:Ref\[)?Tensor\[\w+\]\]?, \((?P<sizes>[\d, ]*)\)")
_SCALAR = re.compile(r"(?:[IU](?:8|16|32|64)|F(?:16|32|64))\((?P<number>[^()]+)\)|Bool\((?P<truth>[01])\)")
_OPENING, _CLOSING = "([{<", ")]}>"


@dataclass(frozen=True, slots=True)
class Statement:
    """A node: its type, what it is given by slot, and the primitive's attributes, each as the text has it.

    ``inputs`` and ``outputs`` are shapes by slot, None for what is not a tensor or has a shape that was not known.
    """

    type: str = ""
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Shape | None, ...] = ()
    outputs: tuple[Shape | None, ...] = ()

    def constant(self, slot: int) -> Any:
        """Return the constant at a slot, None where a tensor is given or nothing."""
        return constant(self.operands[slot]) if slot < len(self.operands) else None

    def attribute(self, name: str) -> Any:
        """Return an attribute of the primitive, None where it has none of that name."""
        return constant(self.attributes[name]) if name in self.attributes else None


def parse_statement(text: str) -> Statement:
    """Return what a statement says; what is not of this form says nothing."""
    head = _HEAD.match(text)
    if head is None:
        return Statement()
    operands, end = _members(text, head.end())
    attributes: dict[str, str] = {}
    start = text.find(_ATTRIBUTES, end)
    if start >= 0:
        entries, end = _members(text, start + len(_ATTRIBUTES))
        pairs = (entry.partition(": ") for entry in entries)
        attributes = {name: value for name, colon, value in pairs if colon}
    shapes = _SHAPES.search(text, end)
    inputs, end = _members(text, shapes.end()) if shapes else ([], end)
    arrow = text.find("-> (", end)
    outputs = _members(text, arrow + 4)[0] if shapes and arrow >= 0 else []
    return Statement(head["type"], tuple(operands), attributes, tuple(map(_shape, inputs)), tuple(map(_shape, outputs)))


def constant(text: str) -> Any:
    """Return a constant of a graph's text, sequences as tuples, None for anything but a constant of plain numbers."""
    text = text.strip()
    if text[:1] in ("(", "["):
        members = [constant(member) for member in _members(text, 1)[0]]
        return None if None in members else tuple(members)
    if text.startswith('"'):
        return text.strip('"')
    scalar = _SCALAR.fullmatch(text)
    if scalar is not None and scalar["truth"] is not None:
        return scalar["truth"] == "1"
    return _number(scalar["number"] if scalar else text)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _shape(member: str) -> Shape | None:
    tensor = _TENSOR.match(member)
    return None if tensor is None else tuple(int(size) for size in tensor["sizes"].split(",") if size.strip())


def _members(text: str, start: int) -> tuple[list[str], int]:
    """Return the parts between commas up to the closing bracket, and where that is."""
    members: list[str] = []
    depth, at, first, is_quoted = 0, start, start, False
    while at < len(text):
        letter = text[at]
        if letter == '"':
            is_quoted = not is_quoted
        elif is_quoted or text.startswith("->", at - 1):
            pass
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            if not depth:
                break
            depth -= 1
        elif letter == "," and not depth:
            members.append(text[first:at].strip())
            first = at + 1
        at += 1
    last = text[first:at].strip()
    return [*members, *([last] if last else [])], at
