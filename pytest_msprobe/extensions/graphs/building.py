"""The graph of one dump, from its records and the files next to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import direction_of, is_module_name, is_parameters_grad, split_module
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.graphs.micro_batches import number_micro_steps
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind, Node
from pytest_msprobe.extensions.graphs.parents import resolve_parents

ROOT = "DefaultModel"
_COLLECTION = "Apis_Between_Modules"
_REMEDY = "record at level L0 or mix"
#: What training frameworks do between modules has no record of its own.
_PHASES = ("optimizer", "clip_grad")


def require_modules(dumps: Iterable[Dump]) -> None:
    """Raise DumpError where a dump was recorded at a level that knows no modules, so that no graph can be built."""
    for dump in dumps:
        if dump.level not in ("L0", "mix"):
            raise DumpError(f"{dump.path}: level {dump.level} records no modules, of which a graph is made; {_REMEDY}")


def build_graph(dump: Dump, surroundings: Surroundings) -> Graph:
    """Return the tree of a dump's modules and calls.

    Raises DumpError where ``construct.json`` does not say in which module each call was made.
    """
    construct = surroundings.parents.undamaged("copy it again")
    if not construct.entries:
        raise DumpError(f"{surroundings.construct_file}: names no module of any record; {_REMEDY}")
    parents = resolve_parents(construct.entries, lambda name: _is_recomputed(dump, surroundings, name))
    graph = _tree(parents | _unnamed(dump, parents))
    number_micro_steps(graph, surroundings.micro_steps)
    return graph


def _is_recomputed(dump: Dump, surroundings: Surroundings, name: str) -> bool:
    if name in dump.records:
        return dump.is_recomputed(name)
    return any("recompute_fn" in frame for frame in surroundings.stacks.of_call(name) or ())


def _unnamed(dump: Dump, parents: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the parents of records that ``construct.json`` does not name, as the gradients of parameters.

    These belong to the last backward call of their module, what else there may be to the top.
    """
    missing = [name for name in dump.records if name not in parents]
    if not missing:
        return {}
    last = {
        (split_module(name).path, split_module(name).class_name): name
        for name in parents
        if is_module_name(name) and direction_of(name) == "backward"
    }
    return {
        name: last.get((split_module(name).path, split_module(name).class_name)) if is_parameters_grad(name) else None
        for name in missing
    }


def _tree(parents: Mapping[str, str | None]) -> Graph:
    root = Node(_unused(ROOT, parents), Kind.MODULE)
    nodes = {root.name: root}
    nodes |= {name: Node(name, kind_of(name), parent or root.name) for name, parent in parents.items()}
    top = [name for name, parent in parents.items() if parent is None]
    for name, parent in parents.items():
        if parent is not None:
            nodes[parent].children.append(name)
    root.children = list(_collected(top, nodes, root.name))
    return Graph(root.name, nodes)


def _collected(top: Iterable[str], nodes: dict[str, Node], root: str) -> Iterable[str]:
    """Yield what lies at the top, with a collection in place of calls of APIs that follow each other."""
    count = 0
    for kind, run in groupby(top, key=lambda name: nodes[name].kind):
        names = list(run)
        if kind is not Kind.API or len(names) == 1:
            yield from names
            continue
        collection = Node(_unused(f"{_COLLECTION}.{count}", nodes), Kind.COLLECTION, root, names)
        count += 1
        nodes[collection.name] = collection
        for name in names:
            nodes[name].parent = collection.name
        yield collection.name


def _unused(name: str, names: Mapping[str, object]) -> str:
    while name in names:
        name += "_"
    return name


def kind_of(name: str) -> Kind:
    """Return what a record's name refers to."""
    return Kind.MODULE if is_module_name(name) or name.startswith(_PHASES) else Kind.API
