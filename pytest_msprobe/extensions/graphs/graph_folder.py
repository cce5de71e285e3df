"""Graphs of single runs for TensorBoard, as a folder of files, or as JSON (``.vis``) as msprobe 1.2 writes them."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import step_rank
from msprobe_hooks.extensions.overflow.anomaly import BUILT_IN, IgnoreRules
from pytest_msprobe.errors import FolderError, OptionError
from pytest_msprobe.extensions.graphs.nodes import build_graph, overflow_levels
from pytest_msprobe.extensions.graphs.vis_database import (
    Conversations,
    Database,
    Facts,
    Manner,
    Picture,
    Place,
    Source,
    open_database,
    recorded_items,
)
from pytest_msprobe.storage.files import atomic_write

_NODES = """
SELECT node_name, node_type, up_node, sub_nodes, precision_index, overflow_level, micro_step_id, matched_node_link,
    stack_info, matched_distributed, input_data, output_data
FROM tb_nodes JOIN tb_stack ON stack_id = tb_stack.id
WHERE step = ? AND rank = ? AND data_source = ? ORDER BY node_order
"""
_ROOT = "SELECT node_name, dump_data_dir FROM tb_nodes WHERE step = ? AND rank = ? AND data_source = ? AND up_node = ''"

Form = Literal["db", "json"]


def write_json_files(database: Database, folder: Path, kind: str, time: str) -> list[Path]:
    """Write a file per place into a folder and return their paths. Raises OSError where the disk refuses."""
    paths = []
    for place in database.places:
        path = folder / f"{kind}{_suffix(place, database)}_{time}.vis"
        with atomic_write(path) as part, part.open("w", encoding="utf-8") as file:
            for piece in _pieces(database, place):
                file.write(piece)
        paths.append(path)
    return paths


def _suffix(place: Place, database: Database) -> str:
    if len({other.step for other in database.places}) > 1:
        return f"_step{place.step}_rank{place.rank}"
    return f"_rank{place.rank}" if len(database.places) > 1 else ""


def _pieces(database: Database, place: Place) -> Iterator[str]:
    manner, connection = database.manner, database.connection
    if manner.is_comparison:
        yield '{"NPU": {'
        yield from _graph(connection, place, "NPU")
        yield '}, "Bench": {'
        yield from _graph(connection, place, "Bench")
        yield "}"
    else:
        yield "{"
        yield from _graph(connection, place, "NPU")
    settings = {
        "ToolTip": manner.tool_tip(),
        "Colors": manner.colours(),
        "MicroSteps": database.micro_steps,
        "task": manner.task,
    }
    for name, value in settings.items():
        if value:
            yield f", {json.dumps(name)}: {json.dumps(value)}"
    yield f', "OverflowCheck": {json.dumps(manner.overflow)}}}'


def _graph(connection: sqlite3.Connection, place: Place, source: Source) -> Iterator[str]:
    root, folder = connection.execute(_ROOT, (*place, source)).fetchone()
    yield f'"root": {json.dumps(root)}, "dump_data_dir": {json.dumps(folder)}, "node": {{'
    separator = ""
    for row in connection.execute(_NODES, (*place, source)):
        yield f"{separator}\n{_node(row)}"
        separator = ","
    yield "}"


def _node(row: tuple[object, ...]) -> str:
    """Return a node with its name; what the database has as JSON goes over as it is."""
    name, kind, parent, children, precision, level, micro_step, link, stack, distributed, inputs, outputs = row
    data = {"precision_index": precision, "overflow_level": level}
    node = {
        "id": json.dumps(name),
        "node_type": kind,
        "output_data": outputs,
        "input_data": inputs,
        "upnode": json.dumps(parent or "None"),
        "subnodes": children or "[]",
        "matched_node_link": link,
        "suggestions": "{}",
        "stack_info": stack,
        "micro_step_id": micro_step,
        "data": json.dumps({key: value for key, value in data.items() if value is not None}),
    }
    if distributed != "{}":
        node["matched_distributed"] = distributed
    return f"{json.dumps(name)}: {{{', '.join(f'{json.dumps(key)}: {value}' for key, value in node.items())}}}"


@dataclass(frozen=True, slots=True)
class VisOptions:
    """Place and form of graph files, and whether nodes show their whole call stack."""

    folder: Path
    form: Form = "db"
    all_frames: bool = False


def require_free(folder: Path) -> None:
    """Raise FolderError where a folder holds graphs already: of several, the viewer shows one database only."""
    if folder.exists() and not folder.is_dir():
        raise FolderError("not a directory", file=folder)
    present = sorted([*folder.glob("*.vis.db"), *folder.glob("*.vis")])
    if present:
        raise FolderError(
            f"holds {present[0].name} already, and the viewer shows one graph file per folder",
            file=folder,
            remedy="pass another folder, or empty this one",
        )


@contextmanager
def open_graphs(folder: Path, manner: Manner, form: Form = "db") -> Iterator[tuple[Database, list[Path]]]:
    """Yield what takes the graphs, and the paths of the files, which are there when the context has ended.

    Raises OSError where the disk refuses.
    """
    kind, time = "compare" if manner.is_comparison else "build", f"{datetime.now():%Y%m%d%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    if form == "db":
        path = folder / f"{kind}_{time}.vis.db"
        with open_database(path, manner) as database:
            yield database, paths
            database.finish()
        _protect(path)
        paths.append(path)
        return
    with tempfile.TemporaryDirectory() as scratch, open_database(Path(scratch, "graphs"), manner) as database:
        yield database, paths
        database.finish()
        for path in write_json_files(database, folder, kind, time):
            _protect(path)
            paths.append(path)


def _protect(path: Path) -> None:
    # The viewer refuses a file that others may write to.
    path.chmod(path.stat().st_mode & ~0o022)


def places_of(paths: Iterable[Path]) -> dict[Path, Place]:
    """Return step and rank of each dump, 0 where its folders name none. Raises OptionError where two have the same."""
    places: dict[Path, Place] = {}
    by_place: dict[Place, Path] = {}
    for path in paths:
        named = step_rank(path)
        place = Place(named.step or 0, named.rank or 0)
        if place in by_place:
            raise OptionError(
                f"same step {place.step} and rank {place.rank} as {by_place[place]}",
                file=path,
                remedy="put dumps into folders named step0, step1 ... and rank0, rank1 ..., or pass one dump",
            )
        places[path] = place
        by_place[place] = path
    return places


def draw_single(
    database: Database, dumps: Iterable[Dump], places: Mapping[Path, Place], rules: IgnoreRules = BUILT_IN
) -> None:
    """Write the graph of each dump, with its levels of overflow where the database wants them."""
    conversations = Conversations(list(places.values()))
    for dump in dumps:
        place = places[dump.path]
        conversations.add(place, dump)
        database.add(single_picture(dump, place, with_levels=database.manner.overflow, rules=rules))
        # The next one may be read when this one has been let go.
        del dump
    conversations.write(database)


def single_picture(dump: Dump, place: Place, *, with_levels: bool, rules: IgnoreRules = BUILT_IN) -> Picture:
    """Return the picture of one dump. Raises DumpError where it does not say in which modules its calls were made."""
    surroundings = dump.surroundings
    level_of = overflow_levels(dump, rules) if with_levels else lambda _: None

    def facts(name: str) -> Facts:
        return Facts(*recorded_items(dump, name), level=level_of(name))

    return Picture("NPU", place, build_graph(dump, surroundings), surroundings, facts, data_folder(dump))


def data_folder(dump: Dump) -> str | None:
    """Return the folder of a dump's tensors, None where it has none."""
    return str(dump.tensor_folder) if dump.tensor_folder.is_dir() else None
