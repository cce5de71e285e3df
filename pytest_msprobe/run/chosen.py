"""Which records of a file a run asks for by name, known before any item is made.

An item costs more than reading its record, and a file may have hundreds of thousands of them.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from pathlib import Path

import pytest

from pytest_msprobe.run.options import options_key


def chosen_names(file: pytest.File) -> Container[str]:
    """Return what holds the names of the items that can run: those of ``FILE::NAME``, and of ``--lf``.

    It holds every name where the file is asked for as a whole. pytest leaves out items that it can leave out as well.
    """
    given, failed = _given(file), _failed(file)
    if given is None:
        return _EVERYTHING if failed is None else failed
    return given if failed is None else _Both(given, failed)


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


_EVERYTHING = _Everything()


class _Both(Container[str]):
    def __init__(self, one: Container[str], other: Container[str]) -> None:
        self._one, self._other = one, other

    def __contains__(self, name: object) -> bool:
        return name in self._one and name in self._other


class _Selected(Container[str]):
    """Names as pytest reads them behind ``::``: one without brackets is also of all that differ in brackets alone."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._names or name.partition("[")[0] in self._names)


def _given(file: pytest.File) -> _Selected | None:
    names = list[str]()
    for argument in file.config.args:
        path, _, name = argument.partition("::")
        # As pytest makes its arguments absolute: symbolic links stay.
        if Path(os.path.abspath(file.config.invocation_params.dir / path)) == file.path:  # noqa: PTH100
            if not name:
                return None
            names.append(name)
    return _Selected(names) if names else None


def _failed(file: pytest.File) -> frozenset[str] | None:
    """Return the names that failed last, where only those are to run and the file has some."""
    cache = getattr(file.config, "cache", None)
    # Which shard a call goes to depends on all of them.
    if cache is None or not file.config.getoption("lf", False) or file.config.stash[options_key].shard:
        return None
    start = f"{file.nodeid}::"
    failed = frozenset(node[len(start) :] for node in cache.get("cache/lastfailed", {}) if node.startswith(start))
    return failed or None
