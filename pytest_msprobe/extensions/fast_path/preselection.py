"""Preselection of what a run names: of the ranks of a run, before folders are gone through, and of a file's records.

An item costs more than reading its record, and a file may have hundreds of thousands of them. A run may have thousands
of ranks, of which pytest would look at each, for each that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.recording_paths import OF_RECORDING
from pytest_msprobe.errors import KeywordError
from pytest_msprobe.extensions.fast_path.left_out_hooks import has_external_impls
from pytest_msprobe.run import marks
from pytest_msprobe.run.collection import absolute, dumps_key
from pytest_msprobe.run.keyword_expression import lowered, parse_keywords
from pytest_msprobe.run.options import options_key

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

# Who has one of these may ask for items that are then left out, or give them other keywords.
_SEE_ALL_ITEMS = (
    "pytest_make_collect_report",
    "pytest_collectreport",
    "pytest_itemcollected",
    "pytest_collection_modifyitems",
    "pytest_deselected",
)

# The names behind ``::`` by the files of a run's arguments, an empty one for a whole file.
_names_key = pytest.StashKey[dict[Path, set[str]]]()

# How many items were not made because of -k.
_deselected_key = pytest.StashKey[int]()


def preselect(file: pytest.File, dump: Dump, names: Iterable[str]) -> Iterator[str]:
    """Yield, of the names of a file's items, those that can run: by ``FILE::NAME``, by ``--lf`` and by ``-k``.

    Any can where the file is asked for as a whole. pytest leaves out items that it can leave out as well;
    `report_preselection` counts those that ``-k`` leaves out here.
    """
    selected, failed = _given(file), _failed(file)
    if selected is not None:
        # As pytest reads it, a name without brackets is also of all that differ in brackets alone.
        names = (name for name in names if name in selected or name.partition("[")[0] in selected)
    if failed is not None:
        # pytest looks for failures among all items of a file, before -k.
        return (name for name in names if name in failed)
    matches = _keywords(file, dump)
    return iter(names) if matches is None else _matching(file.config, names, matches)


def report_preselection(session: pytest.Session) -> None:
    """Count items that were not made because of ``-k`` as collected and deselected, as pytest counts them."""
    count = session.config.stash.get(_deselected_key, 0)
    if not count:
        return
    items: list[pytest.Item | pytest.Collector] = [DeselectedItem.from_parent(session, name="deselected")] * count
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.pytest_collectreport(pytest.CollectReport(session.nodeid, "passed", None, items))
    session.config.hook.pytest_deselected(items=items)


class DeselectedItem(pytest.Item):
    """Takes the place of an item that was not made, where items are counted."""

    def runtest(self) -> None:
        """Raise NotImplementedError: it is never among the items that run."""
        raise NotImplementedError


class RankFolders:
    """Collects the folders of steps and ranks in which a run names nothing but dumps."""

    def __init__(self, config: pytest.Config) -> None:
        self._children: dict[Path, dict[Path, None]] = {}
        dumps = config.stash[dumps_key]
        if any(absolute(config, argument.partition("::")[0]) not in dumps for argument in config.args):
            return
        for file in dumps:
            for child in file.parents[:2]:
                if OF_RECORDING.fullmatch(child.name):
                    self._children.setdefault(child.parent, {})[child] = None

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> RankFolder | None:
        """Return a collector for a folder that has folders of steps or ranks."""
        children = self._children.get(path)
        return None if children is None else RankFolder.from_parent(parent, path=path, children=children)


class RankFolder(pytest.Directory):
    """A folder of which only the folders of some steps or ranks are collected."""

    def __init__(self, *, children: Iterable[Path], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._folders = children

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the collectors of these folders."""
        for path in self._folders:
            yield self.ihook.pytest_collect_directory(path=path, parent=self)


def _given(file: pytest.File) -> frozenset[str] | None:
    """Return the names behind ``::``, None where an argument names the whole file or none names it."""
    config = file.config
    if _names_key not in config.stash:
        config.stash[_names_key] = by_file = dict[Path, set[str]]()
        for path, _, name in (argument.partition("::") for argument in config.args):
            by_file.setdefault(absolute(config, path), set()).add(name)
    names = config.stash[_names_key].get(file.path, set())
    return frozenset(names) if names and "" not in names else None


def _failed(file: pytest.File) -> frozenset[str] | None:
    """Return the names that failed last, where only those are to run and the file has some."""
    cache = getattr(file.config, "cache", None)
    # Which shard a call goes to depends on all of them.
    if cache is None or not file.config.getoption("lf", False) or file.config.stash[options_key].shard:
        return None
    start = f"{file.nodeid}::"
    failed = frozenset(node[len(start) :] for node in cache.get("cache/lastfailed", {}) if node.startswith(start))
    return failed or None


def _keywords(file: pytest.File, dump: Dump) -> Callable[[str], bool] | None:
    """Return a function of an item's name on whether ``-k`` matches it, None where items have to be made for that."""
    config = file.config
    expression = config.option.keyword.lstrip()
    # What came before an item, or failed before, is looked for among all.
    depends_on_others = config.stash[options_key].unique or config.getoption("stepwise", False)
    if (
        not expression
        or depends_on_others
        or config.getoption("lf", False)
        or has_external_impls(config, _SEE_ALL_ITEMS)
    ):
        return None
    try:
        keywords = parse_keywords(expression)
    except KeywordError:
        # pytest refuses it.
        return None
    around = "\n" + lowered([dump.framework, *_names_around(file)])
    if any(word in mark for word in keywords.words for mark in lowered(marks.of_dtypes()).split()):
        return lambda name: keywords.matches(f"{lowered([name, *marks.of_record(dump, name)])}{around}")
    return lambda name: keywords.matches(name.lower() + around)


def _names_around(file: pytest.File) -> Iterator[str]:
    """Yield what pytest matches with every item of a file: the names, keywords and marks of what it is in."""
    for node in file.listchain():
        is_root = isinstance(node, pytest.Session) or (
            isinstance(node, pytest.Directory) and isinstance(node.parent, pytest.Session)
        )
        if not is_root:
            yield node.name
    yield from file.listextrakeywords()
    yield from (mark.name for mark in file.iter_markers())


def _matching(config: pytest.Config, names: Iterable[str], matches: Callable[[str], bool]) -> Iterator[str]:
    deselected = 0
    for name in names:
        if matches(name):
            yield name
        else:
            deselected += 1
    config.stash[_deselected_key] = config.stash.get(_deselected_key, 0) + deselected
