"""Which records of a file a run asks for by name, known before any item is made.

An item costs more than reading its record, and a file may have hundreds of thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_msprobe.run.folders import absolute
from pytest_msprobe.run.options import options_key


def is_chosen(file: pytest.File) -> Callable[[str], bool]:
    """Return what tells by its name whether an item can run: by ``FILE::NAME``, and by ``--lf``.

    Any can where the file is asked for as a whole. pytest leaves out items that it can leave out as well.
    """
    given, failed = _given(file), _failed(file)

    def tell(name: str) -> bool:
        # As pytest reads it, a name without brackets is also of all that differ in brackets alone.
        return (given is None or name in given or name.partition("[")[0] in given) and (
            failed is None or name in failed
        )

    return tell


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
