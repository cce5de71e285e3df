"""Placement of kernels in cells, where the text of a graph does not say it.

The compiler makes one function of each operator (``x + y``) and of some others, and all of its uses have the scope of
the first. The other run says in which module each call is made: where it makes as many of a kind as the graph has, the
n-th is made in the n-th's module, if that lies around something that the kernel takes or is taken by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from msprobe_hooks.dump.names import is_forward_api, is_module_name, shared_name, split_called, split_module
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import Cell, Flow
from pytest_msprobe.modes.compare.matching.reordering import intact

Layers: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Calls:
    """The modules in which a run makes its calls, by the word of the call and in the order of the calls."""

    modules: Mapping[str, Sequence[Layers]]

    def are_made_in(self, word: str, layers: Layers) -> bool:
        """Return whether calls of a word may be made in a module or those in it; of a word that none has, they may."""
        return word not in self.modules or any(one[: len(layers)] == layers for one in self.modules[word])


def plain_word(word: str) -> str:
    """Return the word by which kernels and calls meet: small letters alone."""
    return word.replace("_", "").lower()


def call_word(record: str) -> str:
    """Return the word of a call: the last one of its API."""
    return plain_word(shared_name(split_called(record)[0]).rpartition(".")[2])


def calls_of(dump: Dump) -> Calls:
    """Return where a run makes its calls of the forward pass."""
    parents = intact(dump.surroundings.parents)
    modules: dict[str, list[Layers]] = defaultdict(list)
    for name in dump.records:
        if is_forward_api(name):
            parent = parents.of_call(name)
            path = split_module(parent).path if parent and is_module_name(parent) else ""
            modules[call_word(name)].append(tuple(path.split(".")) if path else ())
    return Calls(modules)


class Placing:
    """The cells of the nodes of a flow: as its text says, or as the calls of the other run say.

    ``root`` are the layers around the model.
    """

    def __init__(self, flow: Flow, root: Layers, calls: Calls) -> None:
        self._flow, self._root, self._calls = flow, root, calls

    @cached_property
    def found(self) -> Mapping[str, Cell]:
        """The cells of nodes of which the text does not say it."""
        nodes: dict[str, list[str]] = defaultdict(list)
        for name in self._flow.nodes:
            if name in self._flow.shared and name in self._within:
                nodes[self.word(name)].append(name)
        cells: dict[str, Cell] = {}
        for word, own in nodes.items():
            modules = self._calls.modules.get(word, ())
            if len(own) == len(modules):
                placed = dict(zip(own, modules, strict=True))
                if all(layers in self._known and self._touches(name, layers) for name, layers in placed.items()):
                    cells |= {name: self._known[layers] for name, layers in placed.items()}
        return cells

    def word(self, name: str) -> str:
        """Return the word of the call that a node is."""
        return plain_word(self._flow.statements[name].type)

    def may_be_in(self, name: str, cell: Cell) -> bool:
        """Return whether a node of which nothing says the cell may be in this one."""
        return self._calls.are_made_in(self.word(name), self._inner(cell))

    @cached_property
    def _known(self) -> Mapping[Layers, Cell]:
        """The cells of the model by their layers."""
        cells = {cell[:end] for cell in self._flow.cells.values() for end in range(len(self._root), len(cell) + 1)}
        return {self._inner(cell): cell for cell in cells if self._is_of_model(cell)}

    @cached_property
    def _within(self) -> set[str]:
        """The nodes that something in the model depends on, which those of the loss are not."""
        inside: set[str] = set()
        for name in reversed(self._flow.nodes):
            is_inside = name in inside or (
                name in self._flow.forward and name not in self._flow.shared and self._is_inside(self._flow.cells[name])
            )
            if is_inside:
                inside |= {name, *(one for one in self._flow.statements[name].operands if one in self._flow.nodes)}
        return inside

    @cached_property
    def _takers(self) -> Mapping[str, Sequence[str]]:
        takers: dict[str, list[str]] = defaultdict(list)
        for name in self._flow.forward:
            for source in self._sources(name):
                takers[source].append(name)
        return takers

    def _sources(self, name: str) -> Iterable[str]:
        origins = map(self._flow.origin, self._flow.statements[name].operands)
        return [origin.name for origin in origins if origin is not None and not origin.is_given]

    def _touches(self, name: str, layers: Layers) -> bool:
        """Return whether a module lies around something that a node takes or is taken by."""
        neighbours = [*self._sources(name), *self._takers.get(name, ())]
        cells = [self._flow.cells[one] for one in neighbours if one not in self._flow.shared]
        return any(self._is_of_model(cell) and self._inner(cell)[: len(layers)] == layers for cell in cells)

    def _is_of_model(self, cell: Cell) -> bool:
        return tuple(name for name, _ in cell[: len(self._root)]) == self._root

    def _is_inside(self, cell: Cell) -> bool:
        return self._is_of_model(cell) and len(cell) > len(self._root)

    def _inner(self, cell: Cell) -> Layers:
        return tuple(name for name, _ in cell[len(self._root) :])
