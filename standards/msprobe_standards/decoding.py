"""YAML that others wrote, as data: a text is decoded, or one YamlError says in a line why not.

All YAML of the project is read here. Aliases are understood, but may not make much of little: a few hundred bytes of
them can stand for gigabytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError

from msprobe_standards.validation import clipped

# A choice: the deepest policy has 5 levels, and Python's stack ends at a thousand calls.
_MAX_DEPTH = 50

# How many nodes aliases may add: as many as these, and a few for each that is written. The largest policy has 2 663; a
# file of a few hundred bytes whose aliases repeat each other stands for gigabytes.
_FREE_NODES = 10_000
_NODES_PER_NODE = 10


# The C parser is as safe and five times as fast, but not in every build of PyYAML.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """A text cannot be decoded; the message says why, as a part of a sentence that names the file."""


class _Loader(Composer, _PARSER):  # type: ignore[misc]
    """Composes in Python what C parses: C's own composer ends the process where nodes are nested deeply."""

    def __init__(self, text: str) -> None:
        _PARSER.__init__(self, text)
        Composer.__init__(self)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Raise what PyYAML's constructors make of a value that is not of its tag, almost anything, with its line."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            problem = f"not a value of {node.tag.rpartition(':')[2]}: {error}"
            raise ConstructorError(None, None, problem, node.start_mark) from None


def decode_yaml(text: bytes) -> Any:
    """Return the value of a YAML text, None for an empty one. Raises YamlError."""
    node = compose_yaml(text)
    if node is None:
        return None
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from None
    finally:
        loader.dispose()


def compose_yaml(text: bytes) -> yaml.Node | None:
    """Return the nodes of a YAML text, which know their lines; None for an empty text. Raises YamlError."""
    try:
        node: yaml.Node | None = yaml.compose(text.decode(), Loader=_Loader)
        if node is not None:
            _require_bounded(node)
    except UnicodeDecodeError:
        raise YamlError("not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from None
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {clipped(str(error))}") from None
    except RecursionError:
        raise YamlError("nested too deeply") from None
    return node


def _marked(error: yaml.MarkedYAMLError) -> YamlError:
    # Newer parsers in C refuse what older ones hand on until Python's stack ends.
    if "nesting depth" in (error.problem or ""):
        return YamlError("nested too deeply")
    line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
    return YamlError(f"not valid YAML{line}: {clipped(error.problem or str(error))}")


def _require_bounded(root: yaml.Node) -> None:
    """Raise YamlError where a tree is deeper than files are, or larger than what is written of it."""
    written: set[int] = set()
    left = [(root, 1)]
    for count in itertools.count(1):
        if not left:
            return
        node, depth = left.pop()
        written.add(id(node))
        if depth > _MAX_DEPTH:
            raise YamlError(f"nested deeper than {_MAX_DEPTH} levels")
        if count > _FREE_NODES + _NODES_PER_NODE * len(written):
            raise YamlError("aliases repeat its content too often")
        left += [(child, depth + 1) for child in _children(node)]


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return itertools.chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()
