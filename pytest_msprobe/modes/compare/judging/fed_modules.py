"""Modules whose inputs were fed from a dump: what they compute is all theirs, what was replaced is of others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.call_context import modules_around
from msprobe_hooks.dump.names import is_forward, split_called
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import counted
from pytest_msprobe.modes.compare.rows import SCALED_ERROR

if TYPE_CHECKING:
    from msprobe_hooks.dump.fed_calls import FedCall
    from pytest_msprobe.modes.compare.matching.matches import Match
    from pytest_msprobe.modes.compare.rows import Row

#: How the first message of an input begins that was replaced.
FED = "fed from "


class FedInputs:
    """Judges the inputs of fed calls: what the program passed, which was replaced, is the work of the code before them.

    It differs for a reason of its own where it is not what a call returned and no wrong call before it in the same
    module explains it. ``judge`` gives the rows of a match without regard to feeding, ``module_of`` the module in which
    a call of the target was made, ``inherited`` how many times an error may grow.
    """

    def __init__(
        self,
        fed: Mapping[str, FedCall],
        matches: Sequence[Match],
        judge: Callable[[str, str], Sequence[Row]],
        module_of: Callable[[str], str],
        inherited: float,
    ) -> None:
        self._fed = fed
        self._matches = matches
        self._judge = judge
        self._module_of = module_of
        self._inherited = inherited
        self._orders = {match.target: order for order, match in enumerate(matches) if match.target is not None}
        self._outputs: dict[int, Sequence[Row]] = {}

    def judged(self, record: str, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of a call of the target, in which only what is its own or the code's before it differs."""
        fed = self._fed.get(record)
        if fed is None:
            return [*rows]
        return [
            self._row(record, fed, row) if row.group == "input" and row.place in fed.places else row for row in rows
        ]

    def _row(self, record: str, fed: FedCall, row: Row) -> Row:
        note = f"{FED}{fed.record} in {fed.dump}"
        if not row.differs:
            return replace(row, messages=(note, *row.messages))
        origin = self._origin(record, row)
        if origin:
            return replace(row, outcome="pass", messages=(note, f"what it replaced differs by {origin}", *row.messages))
        return replace(row, messages=(f"{note}, in place of what the program computed", *row.messages))

    def _origin(self, record: str, row: Row) -> str:
        """Return the wrong call that explains a replaced input, empty where none does."""
        largest, largest_in = 0.0, ""
        parent = self._module_of(record)
        for order in range(self._orders[record]):
            target = self._matches[order].target
            if target is None or not is_forward(target):
                continue
            for output in (one for one in self._rows(order) if one.group == "output" and one.differs):
                if _is_same_tensor(output, row):
                    return target
                is_inside = not parent or parent in modules_around(target, self._module_of)
                error = output.metrics.get(SCALED_ERROR, math.inf)
                if is_inside and error > largest:
                    largest, largest_in = error, target
        if parent and parent not in self._fed and largest == 0:
            inputs = [
                candidate
                for candidate in self._rows(self._orders.get(parent))
                if candidate.group == "input" and candidate.differs
            ]
            largest = max((candidate.metrics.get(SCALED_ERROR, math.inf) for candidate in inputs), default=0.0)
            largest_in = parent
        return largest_in if row.metrics.get(SCALED_ERROR, math.inf) <= self._inherited * largest else ""

    def _rows(self, order: int | None) -> Sequence[Row]:
        if order is None:
            return ()
        if order not in self._outputs:
            match = self._matches[order]
            try:
                self._outputs[order] = self._judge(match.target, match.golden) if match.target and match.golden else ()
            except DumpError:
                self._outputs[order] = ()
        return self._outputs[order]


def _is_same_tensor(output: Row, argument: Row) -> bool:
    """Return whether a call was given what another returned, as far as shape and statistics say."""
    one, other = output.target, argument.target
    return (
        one is not None
        and other is not None
        and one.statistics is not None
        and ((one.shape, one.dtype, one.statistics) == (other.shape, other.dtype, other.statistics))
    )


def header_line(fed: Mapping[str, FedCall], side: str, golden: Path) -> str:
    """Return a line about the fed modules of a run, empty where there are none; ``golden`` is the other run's dump."""
    if not fed:
        return ""
    modules = len({split_called(name)[0] for name in fed})
    (first, _), *others = Counter(call.dump for call in fed.values()).most_common()
    has_passed = all(call.has_passed for call in fed.values())
    more = f" and {counted(len(others), 'other dump')}" if others else ""
    differs = "" if others or _is_same(first, golden) else ", which is not the golden run"
    return (
        f"inputs of {counted(modules, 'module')} of the {side} ({counted(len(fed), 'call')}) were fed from "
        f"{first}{more}{differs}: errors of earlier calls are not in them"
        + ("" if has_passed else "; what they replaced is not recorded, so the code between modules is not compared")
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
        inputs_differ = any(row.differs for row in rows if row.group == "input")
        return not inputs_differ and any(row.differs for row in rows if row.group == "output")
