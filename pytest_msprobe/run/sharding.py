"""Sharding: the shard that checks each call."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from msprobe_hooks.dump.names import split_direction
from msprobe_hooks.dump.schema import recorded_elements
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.shard_option import Shard, divides_dumps

_IS_EMPTY_OUTPUT = "msprobe_shard_is_empty"

#: What an item costs whatever its size, in elements: 2.3 ms, of which 45 ns go to an element of a large tensor
#: (ResNet-18 and GPT-2 on a CPU).
ITEM_ELEMENTS: Final = 50_000


class Call(NamedTuple):
    """Unit that stays together: a call of a dump. Calls of equal work are dealt in the order of their names."""

    path: Path
    name: str


@dataclass(slots=True)
class _Work:
    items: list[pytest.Item] = field(default_factory=list)
    elements: float = 0.0


def start(config: pytest.Config) -> None:
    """Leave out the items of other shards where a shard is asked for and was not chosen among the dumps."""
    options = config.stash[options_key]
    shard = options.shard
    if shard is not None and not divides_dumps(options.mode):
        config.pluginmanager.register(ShardSelection(shard), "msprobe-shard")


def assign_shards(work: Mapping[Call, float], count: int) -> dict[Call, int]:
    """Return the number of the shard, from 1, that each call goes to: the largest first, each to the least laden shard.

    The shards differ by no more than the largest call (Graham, Bounds on multiprocessing timing anomalies, 1969).
    """
    loads = [(0.0, number) for number in range(1, count + 1)]
    dealt = {}
    for call in sorted(work, key=lambda call: (-work[call], call)):
        load, number = loads[0]
        dealt[call] = number
        heapq.heapreplace(loads, (load + work[call], number))
    return dealt


class ShardSelection:
    """Leaves out what other shards check, among what every other choice leaves; tests of the user's own stay."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._is_empty = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the items of other shards."""
        calls = _calls(items)
        dealt = assign_shards({call: work.elements for call, work in calls.items()}, self._shard.total)
        others = {item for call, work in calls.items() if dealt[call] != self._shard.number for item in work.items}
        if others:
            config.hook.pytest_deselected(items=[item for item in items if item in others])
            items[:] = [item for item in items if item not in others]
        self._is_empty = bool(others) and not items

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End well where there are fewer calls than shards: a job of an array has not failed by having no work."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_IS_EMPTY_OUTPUT] = self._is_empty
        elif self._is_empty and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Note from a worker whether there was anything to do; each collects the same items."""
        self._is_empty |= bool(getattr(node, "workeroutput", {}).get(_IS_EMPTY_OUTPUT))


def _calls(items: Iterable[pytest.Item]) -> dict[Call, _Work]:
    calls: dict[Call, _Work] = {}
    for item in items:
        if isinstance(item, JudgedItem):
            work = calls.setdefault(Call(item.path, split_direction(item.name)[0]), _Work())
            if not work.items:
                work.elements = sum(map(recorded_elements, item.records()))
            work.items.append(item)
            work.elements += ITEM_ELEMENTS
    return calls
