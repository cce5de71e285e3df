"""Mapping files: YAML read with the line of everything in it, so that an error can say where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from msprobe_hooks.messages import clipped
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.decoding import YamlError, compose_yaml
from pytest_msprobe.errors import OptionError


@dataclass(frozen=True, slots=True)
class Section:
    """Place of names: below a key of a file, or in the whole of it."""

    path: Path
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a YAML file: a mapping, a list, or a text (numbers are texts as well)."""

    path: Path
    node: yaml.Node

    @property
    def line(self) -> int:
        """The number of its first line, from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def is_list(self) -> bool:
        """Return whether it is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        """Return whether it is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_text(self) -> bool:
        """Return whether it is a text."""
        return isinstance(self.node, yaml.ScalarNode) and not self.is_empty

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is written there."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag.endswith(":null")

    @property
    def place(self) -> str:
        """File and line in words."""
        return f"{self.path}, line {self.line}"

    def refuse(self, problem: str) -> OptionError:
        """Return the error that names file and line; what it quotes of the file may be long."""
        return OptionError(clipped(problem), file=self.place)

    def with_text(self, old: str, new: str) -> Part:
        """Return the part with ``new`` in place of ``old`` in all of its texts, in the same lines."""
        return Part(self.path, _replaced(self.node, old, new))

    def text(self, expected: str) -> str:
        """Return the text. Raises OptionError that says what is ``expected`` where it is none, or empty."""
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value:
            actual = "a list" if self.is_list else "a mapping" if self.is_mapping else "nothing"
            raise self.refuse(f"{actual} in place of {expected}")
        return str(self.node.value)

    def items(self, expected: str) -> Iterator[tuple[str, Part, Part]]:
        """Yield each key of a mapping as text and as part, and what it maps to.

        Raises OptionError with the text ``expected`` where this is no mapping, and for a key given twice.
        """
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse(expected)
        lines: dict[str, int] = {}
        for key_node, value in self.node.value:
            key = Part(self.path, key_node)
            name = key.text("a name")
            if name in lines:
                raise key.refuse(f"{name!r} is there twice, first in line {lines[name]}; delete one")
            lines[name] = key.line
            yield name, key, Part(self.path, value)

    def members(self) -> list[Part]:
        """Return the members of a list; anything else is a list of itself."""
        if isinstance(self.node, yaml.SequenceNode):
            return [Part(self.path, node) for node in self.node.value]
        return [self]


def _replaced(node: yaml.Node, old: str, new: str) -> yaml.Node:
    value = node.value
    if isinstance(node, yaml.ScalarNode):
        value = value.replace(old, new)
    elif isinstance(node, yaml.SequenceNode):
        value = [_replaced(child, old, new) for child in value]
    elif isinstance(node, yaml.MappingNode):
        value = [(_replaced(key, old, new), _replaced(child, old, new)) for key, child in value]
    return type(node)(node.tag, value, node.start_mark, node.end_mark)


def read_document(source: Path | Section, example: str) -> Part:
    """Read a YAML file, or a section of one, that must hold something; ``example`` shows what, in the error.

    Raises OptionError that names file, line and problem.
    """
    path = source.path if isinstance(source, Section) else source
    try:
        node = compose_yaml(read_regular(path))
    except OSError as error:
        raise OptionError(f"cannot be read: {error.strerror}", file=path) from None
    except YamlError as error:
        raise OptionError(str(error), file=path, remedy=f"a line looks like  {example}") from None
    if node is None:
        raise OptionError("the file is empty", file=path, remedy=f"a line looks like  {example}")
    document = Part(path, node)
    if not isinstance(source, Section) or source.key is None:
        return document
    section = next(value for name, _, value in document.items(f"expected the key {source.key}") if name == source.key)
    if section.is_empty:
        raise section.refuse(f"nothing below the key {source.key}; a line looks like  {example}")
    return section
