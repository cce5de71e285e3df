"""What a file of graphs is made of, whatever its form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from msprobe_hooks.dump.anomalies.anomaly import Level
from msprobe_hooks.dump.call_context import Surroundings, outside_frameworks
from pytest_msprobe.extensions.graphs.node_levels import LEVELS, UNMATCHED
from pytest_msprobe.extensions.graphs.nodes import Graph
from pytest_msprobe.extensions.graphs.vis.node_fields import Items

#: What was compared, in the viewer's word: statistics, checksums, real tensors, or nothing but names.
Task = Literal["summary", "md5", "all", "structure"]
Source = Literal["NPU", "Bench"]


class Facts(NamedTuple):
    """What is known of one node besides its place: its values, how precise it is, and how severe its overflow."""

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
    """How graphs are described: ``task`` of a comparison, None for single runs; what the columns of its values mean.

    ``overflow``: nodes have levels of overflow. ``all_frames``: a node shows its whole call stack, and not only the
    line of the user's program.
    """

    task: Task | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    overflow: bool = False
    all_frames: bool = False

    @property
    def is_comparison(self) -> bool:
        """Whether two runs stand side by side."""
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
