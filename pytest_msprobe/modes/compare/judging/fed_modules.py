"""Modules whose inputs were fed from a dump: their inputs are not their own, and what they compute is all theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.call_context import modules_around
from msprobe_hooks.dump.names import is_forward, split_called
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import counted

if TYPE_CHECKING:
    from msprobe_hooks.dump.fed_calls import FedCall
    from pytest_msprobe.modes.compare.matching.matching import Match
    from pytest_msprobe.modes.compare.rows import Row


def with_fed_inputs(rows: Sequence[Row], fed: FedCall) -> list[Row]:
    """Return the judged rows of a fed call: what it was given is not held against it, and says where it came from."""
    note = f"fed from {fed.record} in {fed.dump}"
    return [
        replace(row, outcome="pass" if row.differs else row.outcome, messages=(note, *row.messages))
        if row.group == "input" and row.place in fed.places
        else row
        for row in rows
    ]


def header_line(fed: Mapping[str, FedCall], side: str, golden: Path) -> str:
    """Return a line about the fed modules of a run, empty where there are none; ``golden`` is the other run's dump."""
    if not fed:
        return ""
    modules = len({split_called(name)[0] for name in fed})
    (first, _), *others = Counter(call.dump for call in fed.values()).most_common()
    more = f" and {counted(len(others), 'other dump')}" if others else ""
    differs = "" if others or _is_same(first, golden) else ", which is not the golden run"
    return (
        f"inputs of {counted(modules, 'module')} of the {side} ({counted(len(fed), 'call')}) were fed from "
        f"{first}{more}{differs}: errors of earlier calls are not in them"
    )


def _is_same(dump: str, golden: Path) -> bool:
    try:
        return Path(dump).samefile(golden)
    except OSError:
        # It may have been moved since: then the record's name alone says what was fed.
        return Path(dump).parts[-3:] == golden.absolute().parts[-3:]


class InnerCulprits:
    """Finds out whether the error of a module's call begins in a call inside it.

    ``judge`` gives the rows of a match, ``module_of`` the module in which a call of the target was made.
    """

    def __init__(
        self, matches: Sequence[Match], judge: Callable[[str, str], Iterable[Row]], module_of: Callable[[str], str]
    ) -> None:
        self._judge = judge
        self._inside: dict[str, list[Match]] = {}
        for match in matches:
            if match.target is not None and match.golden is not None and is_forward(match.target):
                for module in modules_around(match.target, module_of):
                    self._inside.setdefault(module, []).append(match)

    def are_in(self, module: str) -> bool:
        """Return whether a call inside this one computes wrong results of right inputs."""
        return any(map(self._begins_in, self._inside.get(module, ())))

    def _begins_in(self, match: Match) -> bool:
        try:
            rows = [*self._judge(match.target or "", match.golden or "")]
        except DumpError:
            return False
        given = any(row.differs for row in rows if row.group == "input")
        return not given and any(row.differs for row in rows if row.group == "output")
