"""Graphs of single runs, a dump at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msprobe_hooks.dump.paths import step_rank
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.extensions.overflow.anomaly import BUILT_IN, IgnoreRules
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.graphs.building import build_graph
from pytest_msprobe.extensions.graphs.node_levels import overflow_level
from pytest_msprobe.extensions.graphs.vis.communication import (
    Conversations,
    Database,
    Facts,
    Picture,
    Place,
    recorded_items,
)


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

    def facts(name: str) -> Facts:
        level = overflow_level(dump, name, rules) if with_levels else None
        return Facts(*recorded_items(dump, name), level=level)

    return Picture("NPU", place, build_graph(dump, surroundings), surroundings, facts, data_folder(dump))


def data_folder(dump: Dump) -> str | None:
    """Return the folder of a dump's tensors, None where it has none."""
    return str(dump.tensor_folder) if dump.tensor_folder.is_dir() else None
