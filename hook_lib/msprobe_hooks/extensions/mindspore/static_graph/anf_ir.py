"""MindSpore's text of a graph (``.ir``): the scope of each node, and the lines of the program that it comes from.

A node is a statement ``%3(equiv_CNode) = MatMul(%1, %2) ... cnode_primal_attrs: {unique_id: "7"}``, followed by
comments: its scope, then the lines of the program from the outermost call in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from pathlib import Path

from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Statement, parse_statement
from msprobe_hooks.regular_files import open_regular

_STATEMENT = re.compile(r"\s*(?P<name>%\w+)\([^()]*\) = ")
_SCOPE = re.compile(r"\s*#.*scope.*?:\s*\((?P<scope>[^()]*)\)\s*$", re.IGNORECASE)
_UNIQUE_ID = re.compile(r'(?P<forward>forward_)?unique_id: "(?P<id>\d+)"')
_GRADIENTS = "Gradients"


@dataclass(frozen=True, slots=True)
class IrNode:
    """One node of a graph; ``lines`` are as the text has them, the innermost last.

    ``id`` identifies a node, and ``forward_id`` the one that a node of the gradient was derived from.
    ``name`` is what other nodes call it (``%15``), ``text`` its statement.
    """

    scope: str = ""
    lines: tuple[str, ...] = ()
    id: str = ""
    forward_id: str = ""
    name: str = ""
    text: str = ""

    @property
    def statement(self) -> Statement:
        """What the node computes of what, read anew for each that asks."""
        return parse_statement(self.text)


@dataclass(slots=True)
class _Draft:
    statement: str
    scope: str = ""
    lines: list[str] = field(default_factory=list)

    def node(self) -> IrNode:
        ids = {match["forward"]: match["id"] for match in _UNIQUE_ID.finditer(self.statement)}
        named = _STATEMENT.match(self.statement)
        name = named["name"] if named else ""
        return IrNode(self.scope, tuple(self.lines), ids.get(None, ""), ids.get("forward_", ""), name, self.statement)


def read_ir(path: Path) -> list[IrNode]:
    """Return the nodes of a graph that name their scope, those of the gradient with the lines of their forward node.

    Raises DumpError where the file cannot be read, or ends inside of a graph.
    """
    lines = _Lines()
    try:
        with TextIOWrapper(open_regular(path), "utf-8", "replace") as file:
            nodes = [node for node in _nodes(lines.of(file)) if node.scope]
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}; pass the .ir file that the run wrote") from None
    if lines.are_open:
        raise DumpError(f"{path}: the text of the graph is cut off; copy the file again")
    forward = {node.id: node.lines for node in nodes if node.id and not node.scope.startswith(_GRADIENTS)}
    return [node if node.lines else replace(node, lines=forward.get(node.forward_id, ())) for node in nodes]


class _Lines:
    """The lines of a text; ``are_open`` while they are inside of a graph."""

    def __init__(self) -> None:
        self.are_open = False

    def of(self, text: Iterable[str]) -> Iterator[str]:
        """Yield the lines."""
        for line in text:
            if line.startswith(("subgraph ", "}")):
                self.are_open = line.startswith("s")
            yield line


def _nodes(text: Iterable[str]) -> Iterator[IrNode]:
    draft: _Draft | None = None
    for line in text:
        if _STATEMENT.match(line):
            if draft is not None:
                yield draft.node()
            draft = _Draft(line)
        elif draft is None:
            continue
        elif draft.scope and not line.lstrip().startswith("#"):
            yield draft.node()
            draft = None
        elif draft.scope:
            draft.lines.append(line.strip("# \n\t/"))
        elif match := _SCOPE.match(line):
            draft.scope = match["scope"]
        else:
            # Attributes of a long statement may go on in the lines before its scope.
            draft.statement += line
    if draft is not None:
        yield draft.node()
