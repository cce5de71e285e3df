"""``.vis.db``, graphs of all steps and ranks in the SQLite schema of msprobe 26, with partners on other ranks."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from msprobe_hooks.dump.call_context import Surroundings, outside_frameworks
from msprobe_hooks.dump.communication.jsonl import Call, Partners, match_partners, read_calls
from msprobe_hooks.dump.names import is_distributed
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import PlacedValue, Value, read_values
from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.overflow.anomaly import Level
from pytest_msprobe.extensions.graphs.nodes import LEVELS, UNMATCHED, Graph, Kind, Node, worst
from pytest_msprobe.storage.files import atomic_write

#: The fields of each value, by the value's name.
Items: TypeAlias = dict[str, dict[str, str]]

_NOTHING = "null"


def recorded_items(dump: Dump, record: str) -> tuple[Items, Items]:
    """Return what a record says of its inputs and of its outputs; nothing of one that is malformed or not there."""
    if record not in dump.records:
        return {}, {}
    try:
        return split(read_values(dump, record))
    except RecordError:
        # The comparison and the search for overflow report it as an item of their own.
        return {}, {}


def split(values: Iterable[PlacedValue]) -> tuple[Items, Items]:
    """Return inputs and outputs; parameters and their gradients count as inputs, as for msprobe."""
    inputs: Items = {}
    outputs: Items = {}
    for placed in values:
        (outputs if placed.group == "output" else inputs)[placed.name] = fields_of(placed.value)
    return inputs, outputs


def fields_of(value: Value) -> dict[str, str]:
    """Return the fields of one value, under msprobe's names."""
    if not value.is_tensor:
        return {"type": value.type, "value": value.text} if value.type else {"value": _NOTHING}
    fields = {"type": value.type, "dtype": value.dtype, "shape": str([*value.shape])}
    if value.statistics is not None:
        fields["Max"], fields["Min"], fields["Mean"], fields["Norm"] = map(_word, value.statistics)
    if value.requires_grad is not None:
        fields["requires_grad"] = "True" if value.requires_grad else "False"
    if value.checksum is not None:
        fields["md5"] = value.checksum
    if value.data_name is not None:
        fields["data_name"] = value.data_name
    return fields


def _word(number: float | bool | None) -> str:
    return _NOTHING if number is None else str(number)


#: What was compared, in the viewer's word: statistics, checksums, real tensors, or nothing but names.
Task = Literal["summary", "md5", "all", "structure"]
Source = Literal["NPU", "Bench"]


class Facts(NamedTuple):
    """Facts of one node besides its place: its values, how precise it is, and how severe its overflow."""

    inputs: Items
    outputs: Items
    precision: float | None = None
    level: Level | None = None


class Place(NamedTuple):
    """A step and a rank; a dump without them is the first."""

    step: int
    rank: int


@dataclass(frozen=True)
class Picture:
    """The graph of one run at one place.

    ``facts`` returns those of a node by name; it is asked once per node and children first, so that nothing is kept.
    ``partners`` are the nodes of the other run, ``other`` is its graph; a single run has neither.
    """

    source: Source
    place: Place
    graph: Graph
    surroundings: Surroundings
    facts: Callable[[str], Facts]
    data_folder: str | None = None
    partners: Mapping[str, str] = field(default_factory=dict)
    other: Graph | None = None

    def partner_path(self, name: str) -> list[str]:
        """Return the way to a node's partner from the root of the other graph, nothing where it has none."""
        partner = self.partners.get(name)
        return [] if partner is None or self.other is None else self.other.path(partner)


@dataclass(frozen=True, slots=True)
class Manner:
    """Manner of describing graphs: ``task`` of a comparison, None for single runs; the meaning of its values' columns.

    ``overflow``: nodes have levels of overflow. ``all_frames``: a node shows its whole call stack, and not only the
    line of the user's program.
    """

    task: Task | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    overflow: bool = False
    all_frames: bool = False

    @property
    def is_comparison(self) -> bool:
        """Return whether two runs stand side by side."""
        return self.task is not None

    def colours(self) -> dict[str, Any]:
        """Return the colours of precision as the viewer reads them; single runs have none."""
        if not self.is_comparison:
            return {}
        shown: dict[str, Any] = {
            level.colour: {
                "value": [level.low, level.high],
                "description": level.description,
                "accuracy_level": level.name,
            }
            for level in LEVELS
        }
        colour, description = UNMATCHED
        return shown | {colour: {"value": [], "description": description, "accuracy_level": "unmatched node"}}

    def tool_tip(self) -> str | None:
        """Return what the columns mean, as the text of JSON."""
        return json.dumps(dict(self.columns)) if self.columns else None

    def stack(self, surroundings: Surroundings, name: str) -> tuple[str, ...]:
        """Return the frames to show of a node, the innermost first."""
        frames = surroundings.stacks.of_call(name) or ()
        return frames if self.all_frames else _call_site(frames)


@lru_cache(maxsize=4096)
def _call_site(frames: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(outside_frameworks(frames)[:1])


_TABLES = """
CREATE TABLE tb_config (
    id TEXT PRIMARY KEY, graph_type TEXT NOT NULL, task TEXT, tool_tip TEXT, micro_steps INTEGER,
    overflow_check INTEGER, node_colors TEXT NOT NULL, rank_list TEXT NOT NULL, step_list TEXT NOT NULL);
CREATE TABLE tb_stack (id TEXT PRIMARY KEY, stack_info TEXT);
CREATE TABLE tb_nodes (
    id TEXT PRIMARY KEY, graph_id TEXT NOT NULL, node_order INTEGER NOT NULL, node_name TEXT NOT NULL,
    node_type TEXT NOT NULL, up_node TEXT, sub_nodes TEXT, precision_index INTEGER, overflow_level TEXT,
    micro_step_id INTEGER NOT NULL, matched_node_link TEXT, stack_id TEXT, parallel_merge_info TEXT,
    matched_distributed TEXT, modified INTEGER NOT NULL, input_data TEXT, output_data TEXT, data_source TEXT,
    dump_data_dir TEXT, step INTEGER NOT NULL, rank INTEGER NOT NULL, is_distributed INTEGER);
"""
_INDEXES = """
CREATE INDEX index1 ON tb_nodes (step, rank, data_source, up_node, node_order);
CREATE INDEX index2 ON tb_nodes (step, rank, data_source, node_name);
CREATE INDEX index3 ON tb_nodes (step, rank, data_source, node_order);
CREATE INDEX index4 ON tb_nodes (step, rank, node_order);
CREATE INDEX index5 ON tb_nodes (step, rank, micro_step_id, node_order);
CREATE INDEX index6 ON tb_nodes (step, rank, modified, matched_node_link);
CREATE INDEX index7 ON tb_nodes (is_distributed);
"""
_NODE = f"INSERT INTO tb_nodes VALUES ({', '.join('?' * 22)})"
_STACK = "INSERT INTO tb_stack VALUES (?, ?)"
_PARTNERS = "UPDATE tb_nodes SET matched_distributed = ?, is_distributed = 1 WHERE id = ?"

_encode = msgspec.json.Encoder().encode

Row: TypeAlias = tuple[Any, ...]


class Database:
    """A file that is being written, one picture after the other."""

    def __init__(self, connection: sqlite3.Connection, manner: Manner) -> None:
        self.connection = connection
        self.manner = manner
        self.places: dict[Place, None] = {}
        self.micro_steps = 1
        #: The index or level of each node of communication, by place and name.
        self.communications: dict[tuple[Place, str], str] = {}
        connection.executescript(_TABLES)

    def add(self, picture: Picture) -> None:
        """Write one run's graph at one place. Raises DumpError where its ``stack.json`` is damaged."""
        picture.surroundings.stacks.undamaged("copy it again, or delete it to draw without it")
        self.places.setdefault(picture.place)
        self.micro_steps = max(self.micro_steps, picture.graph.micro_steps)
        stacks: dict[tuple[str, ...], str] = {}
        with self.connection:
            self.connection.executemany(_NODE, self._nodes(picture, stacks))
            self.connection.executemany(_STACK, ((key, _text(frames)) for frames, key in stacks.items()))

    def join(self, place: Place, name: str, partners: object) -> None:
        """Note the partners of a communication on other ranks."""
        self.connection.execute(_PARTNERS, (_text(partners), f"NPU_{place.step}_{place.rank}_{name}"))

    def finish(self) -> None:
        """Write what the whole file has in common."""
        steps, ranks = ({place[i] for place in self.places} for i in (0, 1))
        manner = self.manner
        kind = "compare" if manner.is_comparison else "build"
        with self.connection:
            self.connection.execute(
                "INSERT INTO tb_config VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    "1", kind, manner.task, manner.tool_tip(), self.micro_steps, int(manner.overflow),
                    _text(manner.colours()), _text(sorted(ranks)), _text(sorted(steps)),
                ),
            )  # fmt: skip
        self.connection.executescript(_INDEXES)

    def _nodes(self, picture: Picture, stacks: dict[tuple[str, ...], str]) -> Iterator[Row]:
        place = picture.place
        graph_id = f"{picture.source}_{place.step}_{place.rank}"
        indices: dict[str, float] = {}
        for order, node in enumerate(picture.graph.children_first()):
            facts = picture.facts(node.name)
            index = worst(indices, node.children) if node.kind is Kind.COLLECTION else facts.precision
            if index is not None:
                indices[node.name] = index
            self._note(picture, node, index, facts)
            frames = self.manner.stack(picture.surroundings, node.name)
            stack = stacks.setdefault(frames, f"{graph_id}_{len(stacks)}")
            yield (
                f"{graph_id}_{node.name}", graph_id, order, node.name, str(int(node.kind)), node.parent,
                _text(node.children) if node.children else "", index, facts.level, node.micro_step,
                _text(picture.partner_path(node.name)), stack, "", "{}", 0, _text(facts.inputs), _text(facts.outputs),
                picture.source, picture.data_folder, place.step, place.rank, 0,
            )  # fmt: skip

    def _note(self, picture: Picture, node: Node, index: float | None, facts: Facts) -> None:
        if picture.source == "NPU" and is_distributed(node.name):
            shown_level = facts.level if index is None else index
            self.communications[picture.place, node.name] = "Nan" if shown_level is None else str(shown_level)


def _text(value: object) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair is text to Python's own writer only.
        return json.dumps(value)


@contextmanager
def open_database(path: Path, manner: Manner) -> Iterator[Database]:
    """Yield a database, to be finished, that takes its place when the context ends. Raises OSError for a full disk."""
    with atomic_write(path) as part, closing(sqlite3.connect(part)) as connection:
        try:
            # It is not read before it is complete.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            yield Database(connection, manner)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.close()
        except sqlite3.OperationalError as error:
            raise OSError(None, str(error)) from None


class Conversations:
    """The communications of all ranks, gathered a rank at a time; they are few, and are matched when all are there."""

    def __init__(self, places: list[Place]) -> None:
        self._worlds: dict[int, set[int]] = defaultdict(set)
        for place in places:
            self._worlds[place.step].add(place.rank)
        self._steps: dict[int, list[list[Call]]] = defaultdict(list)

    def add(self, place: Place, dump: Dump) -> None:
        """Take the communications of one rank of a step. What a record says of none is left out."""
        world = frozenset(self._worlds[place.step])
        if len(world) > 1:
            self._steps[place.step].append(read_calls(dump, place.rank, world).calls)

    def write(self, database: Database) -> None:
        """Match them and note each node's partners, with what is known of these."""
        for step, ranks in self._steps.items():
            for (rank, name), conversations in match_partners(ranks).items():
                fields = [_fields(database, step, partners) for partners in conversations]
                database.join(Place(step, rank), name, fields[0] if len(fields) == 1 else fields)


def _fields(database: Database, step: int, partners: Partners) -> dict[str, Any]:
    nodes = {
        str(rank): [database.communications.get((Place(step, rank), name), "Nan"), name]
        for rank, name in partners.records.items()
    }
    return {"communications_type": partners.direction, "nodes_info": nodes}
