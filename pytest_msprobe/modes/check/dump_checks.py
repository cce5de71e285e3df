"""Checks of dumps whose records are no calls of a program, such as the kernels of a static graph, by kind of dump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from msprobe_hooks.errors import DumpError
from pytest_msprobe.installed_extensions import register

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig
    from pytest_msprobe.modes.check.options import CheckOptions
    from pytest_msprobe.results.result import DirectionResult
    from pytest_msprobe.run.item import DumpItem

CALLS = "calls"


class DumpCheck(Protocol):
    """The check of the records of one kind of dump."""

    def require_checkable(self, dumps: Iterable[Dump], options: CheckOptions) -> None:
        """Raise DumpError for a dump that cannot be checked, OptionError for an option that has no meaning here."""

    def names(self, dump: Any) -> Iterator[str]:
        """Yield the names of the records that are checked, in recorded order."""

    def items(self, file: pytest.File, dump: Any) -> Iterator[DumpItem]:
        """Yield an item for each of these records."""

    def judge(self, dump: Any, name: str, setup: ReplayConfig) -> DirectionResult:
        """Return the policy's verdict on a record."""


class DumpCheckRegistry:
    """Checks by kind of dump; extensions and plugins add theirs in ``pytest_msprobe_register_dump_checks``."""

    def __init__(self) -> None:
        self._checks: dict[str, DumpCheck] = {}
        register("pytest_msprobe_register_dump_checks", self)

    def add(self, kind: str, check: DumpCheck) -> None:
        """Check the records of a kind of dump, as `Dump.kind` names it."""
        self._checks[kind] = check

    def of(self, dump: Dump) -> DumpCheck | None:
        """Return the check of a dump's records; None where they are calls. Raises DumpError where there is none."""
        if dump.kind == CALLS:
            return None
        if dump.kind not in self._checks:
            why = _UNCHECKED.get(dump.kind, f"records of the kind {dump.kind!r} cannot be checked here")
            raise DumpError(f"{getattr(dump, 'home', dump.path)}: {why}")
        return self._checks[dump.kind]


_UNCHECKED = {
    "kernel files": "converted kernel files do not say how their kernels were called; "
    "--msprobe-compare and --msprobe-golden compare them with those of another run"
}


@cache
def dump_checks() -> DumpCheckRegistry:
    """Return the checks of this process."""
    return DumpCheckRegistry()
