"""``.vis.db``: the graphs of all steps and ranks in one SQLite file, in the schema of msprobe 26."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from msprobe_hooks.dump.names import is_distributed
from pytest_msprobe.extensions.graphs.node_levels import worst
from pytest_msprobe.extensions.graphs.nodes import Kind, Node
from pytest_msprobe.extensions.graphs.vis.model import Facts, Manner, Picture, Place
from pytest_msprobe.storage.atomic_write import atomic_write

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
