"""The graph of one dump: the tree of a run's modules and calls, from its records and the files next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Literal, NamedTuple

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.communication.jsonl import find_steps
from msprobe_hooks.dump.names import (
    backward_of,
    direction_of,
    forward_of,
    is_module_name,
    is_parameters_grad,
    split_module,
)
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import DumpError, RecordError
from msprobe_hooks.extensions.overflow.anomaly import (
    BUILT_IN,
    IgnoreRules,
    find_scene,
    is_ignored,
    is_judgeable,
    read_record_io,
)
from msprobe_hooks.extensions.overflow.anomaly import Level as AnomalyLevel
from pytest_msprobe.extensions.overflow.nonfinite_origins import analyse

#: Deeper than this no model is nested; what a file nests deeper is put at the top.
MAX_DEPTH = 400

ROOT = "DefaultModel"
_COLLECTION = "Apis_Between_Modules"
_REMEDY = "record at level L0 or mix"
#: What training frameworks do between modules has no record of its own.
_PHASES = ("optimizer", "clip_grad")

Outcome = Literal["pass", "warn", "fail", "skip"]

#: The index of an outcome; what nothing was measured of has none.
INDEX: Mapping[Outcome, float] = {"pass": 0.0, "warn": 0.5, "fail": 1.0}
UNMATCHED = ("#C7C7C7", "the golden run has no such call")


def number_micro_steps(graph: Graph, recorded: Mapping[str, int]) -> None:
    """Assign every node its micro step: as recorded, or else that of what it lies in.

    At the top, where nothing is recorded, a module's forward call after a backward one begins the next micro step.
    """
    top = graph.nodes[graph.root].children
    _follow(graph, {**dict(zip(top, _counted(graph, top), strict=True)), **recorded})


def _counted(graph: Graph, top: Iterable[str]) -> Iterable[int]:
    step, is_backward = 0, False
    for name in top:
        if graph.nodes[name].kind is Kind.MODULE:
            direction = direction_of(name)
            if direction == "forward" and is_backward:
                step, is_backward = step + 1, False
            elif direction == "backward":
                is_backward = True
        yield step


def _follow(graph: Graph, micro_steps: Mapping[str, int]) -> None:
    waiting = [graph.root]
    while waiting:
        node = graph.nodes[waiting.pop()]
        node.micro_step = micro_steps.get(node.name, graph.nodes[node.parent].micro_step if node.parent else 0)
        waiting += node.children


def resolve_parents(written: Mapping[str, str | None], is_recomputed: Callable[[str], bool]) -> dict[str, str | None]:
    """Return the parent of each name, None at the top; a parent that has no entry is one at the top.

    No name is its own ancestor, and none has more than `MAX_DEPTH` of them: what closes a circle is put at the top.
    """
    parents: dict[str, str | None] = {}
    repairs = _Repairs(written, is_recomputed)
    for name in written:
        parent = repairs.parent_of(name)
        if parent is not None:
            # Where only a call inside of it names a module, it began no later than that call.
            parents.setdefault(parent, None)
        parents[name] = parent
    _cut_circles(parents)
    return parents


class _Repairs:
    def __init__(self, written: Mapping[str, str | None], is_recomputed: Callable[[str], bool]) -> None:
        self._written = written
        self._is_recomputed = is_recomputed
        self._last_forward: dict[str, str] = {}

    def parent_of(self, name: str) -> str | None:
        """Return the parent of a name; names are asked for in their order."""
        parent = self._written[name] or None
        direction = direction_of(name)
        if direction == "backward" and (parent is None or _is_elsewhere(name, parent)):
            return self._beside_forward(name) or parent
        if direction == "forward" and (parent is None or direction_of(parent) == "forward"):
            if self._is_recomputed(name):
                return self._in_backward(name, parent)
            if is_module_name(name):
                self._last_forward[split_module(name).path] = name
        return parent

    def _beside_forward(self, name: str) -> str | None:
        """Return the backward call of the module in which the forward call was made, where it was recorded."""
        twin = self._written.get(forward_of(name))
        around = backward_of(twin) if twin else None
        return around if around in self._written and around != name else None

    def _in_backward(self, name: str, parent: str | None) -> str | None:
        """Return the backward call during which a forward call was made again."""
        if parent is not None:
            around = backward_of(parent)
            return around if around in self._written else parent
        if not is_module_name(name):
            return None
        path = split_module(name).path
        while path:
            path = path.rpartition(".")[0]
            # What runs backward is what ran forward last.
            around = backward_of(self._last_forward.get(path, ""))
            if around in self._written:
                return around
        return None


def _is_elsewhere(name: str, parent: str) -> bool:
    """Return whether a module's backward call is said to lie in one that is not around the module."""
    if not (is_module_name(name) and is_module_name(parent)):
        return False
    return not split_module(name).path.startswith(f"{split_module(parent).path}.")


def _cut_circles(parents: dict[str, str | None]) -> None:
    depths: dict[str, int] = {}
    for start in parents:
        branch: dict[str, None] = {}
        name: str | None = start
        while name is not None and name not in depths:
            if name in branch:
                # The way up has come back to itself.
                parents[name] = None
                break
            branch[name] = None
            name = parents[name]
        for name in reversed(branch):
            above = parents[name]
            depth = 0 if above is None else depths.get(above, 0) + 1
            if depth > MAX_DEPTH:
                parents[name], depth = None, 0
            depths[name] = depth


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


class Kind(IntEnum):
    """Kind of a node; the numbers are those of msprobe's files."""

    MODULE = 0
    API = 1
    #: A run of API calls that no module made.
    COLLECTION = 9


@dataclass(slots=True)
class Node:
    """A call of a module or of an API, by its record's name; ``children`` are in the order in which they began.

    ``parent`` is empty for the root. ``micro_step`` counts the forward and backward passes of a step.
    """

    name: str
    kind: Kind
    parent: str = ""
    children: list[str] = field(default_factory=list)
    micro_step: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """A tree of nodes by name, the root first and the others in the order in which they began."""

    root: str
    nodes: Mapping[str, Node]

    @property
    def micro_steps(self) -> int:
        """Return how many micro steps there are."""
        return max(node.micro_step for node in self.nodes.values()) + 1

    def path(self, name: str) -> list[str]:
        """Return the names from the root to a node, both included."""
        names = []
        while name:
            names.append(name)
            name = self.nodes[name].parent
        return names[::-1]

    def children_first(self) -> Iterator[Node]:
        """Yield every node after its children."""
        waiting = [(self.nodes[self.root], False)]
        while waiting:
            node, is_open = waiting.pop()
            if is_open or not node.children:
                yield node
            else:
                waiting.append((node, True))
                waiting += [(self.nodes[name], False) for name in reversed(node.children)]


def pair_nodes(target: Graph, golden: Graph, records: Mapping[str, str | None]) -> dict[str, str]:
    """Return the golden node of each node of the target that has one.

    ``records`` are the partners that records found, None for none. A collection goes where its first matched call went,
    and what has no record, as the root, to the node of its name.
    """
    partners = {
        name: other for name, other in records.items() if other and other in golden.nodes and name in target.nodes
    }
    partners[target.root] = golden.root
    partnered = set(partners.values())
    for node in target.nodes.values():
        if node.name in partners or node.name in records:
            continue
        other = _around(golden, partners, node.children) if node.kind is Kind.COLLECTION else node.name
        candidate = golden.nodes.get(other)
        if candidate is not None and candidate.kind is node.kind and other not in partnered:
            partners[node.name] = other
            partnered.add(other)
    return partners


def _around(golden: Graph, partners: Mapping[str, str], children: Iterable[str]) -> str:
    return next((golden.nodes[partners[name]].parent for name in children if name in partners), "")


def follow_micro_steps(target: Graph, golden: Graph, partners: Mapping[str, str]) -> None:
    """Set on golden nodes the micro steps of their partners, so that both are seen together."""
    for name, other in partners.items():
        golden.nodes[other].micro_step = target.nodes[name].micro_step


class Level(NamedTuple):
    """A class of precision: its colour, the indices from ``low`` up to ``high``, and what it is called."""

    colour: str
    low: float
    high: float
    name: str
    description: str


#: msprobe's classes. It ends the last one at 1, the index of an error, and its viewer then does not find errors.
LEVELS = (
    Level("#FFFCF3", 0.0, 0.3, "pass", "the call agrees with the golden run"),
    Level("#FFDC7F", 0.3, 0.6, "warning", "the difference exceeds the warning limit"),
    Level("#FF704D", 0.6, 1.1, "error", "the difference exceeds the limit"),
)


def precision_indices(graph: Graph, outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return the index of each node that has one: that of its record's outcome, of a collection its worst call's."""
    indices = {name: INDEX[outcome] for name, outcome in outcomes.items() if outcome in INDEX}
    for node in graph.nodes.values():
        index = worst(indices, node.children) if node.kind is Kind.COLLECTION else None
        if index is not None:
            indices[node.name] = index
    return indices


def worst(indices: Mapping[str, float], names: Iterable[str]) -> float | None:
    """Return the worst index among some nodes, None where none has one."""
    return max((indices[name] for name in names if name in indices), default=None)


def overflow_levels(dump: Dump, rules: IgnoreRules = BUILT_IN) -> Callable[[str], AnomalyLevel | None]:
    """Return a function from a record to the level of what it shows, as a search for overflow judges it.

    It returns None where nothing is wrong or a rule ignores it, and of a record that is malformed, has no direction or
    is not there.
    """
    (step,) = find_steps([dump])
    ((_, beginnings),) = analyse(step, rules).beginnings.items()

    def level(record: str) -> AnomalyLevel | None:
        if record not in dump.records or not is_judgeable(record):
            return None
        try:
            finding = beginnings.get(record) or find_scene(read_record_io(dump, record))
        except RecordError:
            return None
        return None if finding is None or is_ignored(finding, record, rules) else finding.scene.level

    return level
