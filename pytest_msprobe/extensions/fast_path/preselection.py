"""Preselection of a file's records that a run names, before any item is made.

An item costs more than reading its record, and a file may have hundreds of thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import KeywordError
from pytest_msprobe.extensions.fast_path.left_out_hooks import has_external_impls
from pytest_msprobe.run import marks
from pytest_msprobe.run.collection import absolute
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


def _given(file: pytest.File) -> frozenset[str] | None:
    """Return the names behind ``::``, None where an argument names the whole file or none names it."""
    arguments = (argument.partition("::") for argument in file.config.args)
    names = frozenset(name for path, _, name in arguments if absolute(file.config, path) == file.path)
    return names if names and "" not in names else None


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
