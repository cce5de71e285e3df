"""The summary of a recording: counts, and a sentence."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Literal, TypeAlias

from msprobe_hooks.dump.names import direction_of, split_called
from msprobe_hooks.messages import counted, escaped_name, listed

_log = logging.getLogger("msprobe_hooks")

#: What a record is counted as.
Count: TypeAlias = Literal["calls", "backwards", "modules", "saves"]

_NAMED = 10


@dataclass(slots=True)
class Summary:
    """Counts of one recording, of what is in the files.

    ``seconds`` are those between start and stop, ``bytes`` what was written; ``late`` are backward records of a step
    that had ended, ``traced`` calls that a tracer or compiler made, ``unrecorded`` calls that computed and are in no
    list. ``failure`` says why files could not be
    written, which ended the recording; ``dropped`` are the steps that a spool folder did not take, by reason.
    ``iterations`` are those of graphs that the framework itself dumped; ``awaited`` is what did not run where nothing
    was recorded; ``unmatched`` are lines on entries of ``list`` that no name contained.
    """

    calls: int = 0
    backwards: int = 0
    modules: int = 0
    saves: int = 0
    raised: int = 0
    repeated: int = 0
    late: int = 0
    traced: int = 0
    seconds: float = 0.0
    bytes: int = 0
    started: bool = False
    folders: list[Path] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)
    unmatched: list[str] = field(default_factory=list)
    unrecorded: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    iterations: int = 0
    awaited: str = "supported call"
    dropped: Counter[str] = field(default_factory=Counter)
    #: Tensors of which something is not in the files, by what and why.
    left_out: Counter[str] = field(default_factory=Counter)
    #: How the first of errors that are alike was reported, by what was called and what went wrong.
    _first: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)

    @property
    def records(self) -> int:
        """Return how many records were written."""
        return self.calls + self.backwards + self.modules + self.saves

    def add(self, count: Count, number: int = 1) -> None:
        """Count so many more records."""
        setattr(self, count, getattr(self, count) + number)

    def note_error(self, where: str, error: Exception) -> None:
        """Count a failure to observe, and log the first of those that are alike; the user's code goes on.

        ``where`` names a record, or what else is not observed. Records of one function are counted together.
        """
        problem = f" {described(error)}".splitlines()[0]
        direction = direction_of(where)
        what = f"{split_called(where)[0]} {direction}" if direction else where
        text = self._first.setdefault((what, problem), f"{where}:{problem}")
        self.errors[text] += 1
        if self.errors[text] == 1 and len(self.errors) <= _NAMED:
            _log.warning("not recorded: %s", text)
            if len(self.errors) == _NAMED:
                _log.warning("not recorded: further failures are in the summary")

    def __str__(self) -> str:
        return "; ".join(self._clauses())

    def _repr_html_(self) -> str:
        return "\n".join(f"<p>{escape(escaped_name(clause))}</p>" for clause in self._clauses())

    def _clauses(self) -> list[str]:
        if self.is_empty:
            return [f"nothing was recorded: {self.why_empty()}"]
        parts = [
            (self.calls, "call"),
            (self.backwards, "backward record"),
            (self.modules, "module record"),
            (self.saves, "saved variable"),
            (self.iterations, "graph iteration"),
        ]
        counts = ", ".join(counted(*part) for part in parts if part[0])
        where = listed(map(str, self.folders), 3)
        recorded = f"recorded {counts} in {self.seconds:.1f} s, {_size(self.bytes)}, into {where or 'no folder'}"
        return [*self.stopped(), recorded, *self.notes()]

    def numbers(self) -> dict[str, float]:
        """Return counts, seconds and bytes by name: a row for ``pandas.DataFrame([summary.numbers()])``."""
        return {name: value for name in self.__slots__ if type(value := getattr(self, name)) in (int, float)}

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was recorded."""
        return self.records == self.iterations == 0

    def stopped(self) -> list[str]:
        """Return why files could not be written."""
        return [f"recording stopped: {self.failure}"] if self.failure else []

    def notes(self) -> list[str]:
        """Return a line for each thing that is missing."""
        lines = [
            f"{count} {'step was' if count == 1 else 'steps were'} dropped: {reason}"
            for reason, count in self.dropped.items()
        ]
        if self.raised:
            lines.append(f"{counted(self.raised, 'call')} raised, as noted in the records")
        if self.repeated:
            passes = counted(self.repeated, "further backward pass", "further backward passes")
            lines.append(f"not recorded: {passes} through the same calls")
        if self.late:
            lines.append(f"missing backward records, as they came after step() had ended their step: {self.late}")
        if self.traced:
            lines.append(f"not recorded, as a compiler or tracer of torch makes them: {counted(self.traced, 'call')}")
        if self.unrecorded:
            lines.append(self._unrecorded())
        lines += [f"{counted(count, 'tensor')} without {what}" for what, count in self.left_out.items()]
        lines += [f"{counted(count, 'record')} removed by {name}" for name, count in self.removed.items()]
        lines += self.unmatched
        lines += [f"not recorded, {counted(count, 'time')}: {text}" for text, count in self.errors.items()]
        return lines

    def _unrecorded(self) -> str:
        names = (f"{name} ({counted(count, 'call')})" for name, count in self.unrecorded.most_common())
        return f"not recorded, as msprobe does not record it: {listed(names, _NAMED)}"

    def why_empty(self) -> str:
        """Return which filter removed what, or what did not happen."""
        if self.failure:
            return self.failure
        if self.errors:
            return "; ".join(f"{text} ({counted(count, 'time')})" for text, count in self.errors.items())
        if not self.started:
            return "recording was never started in a configured step and rank" + _listed(self.removed)
        if self.removed:
            return "; ".join(["all records were removed" + _listed(self.removed), *self.unmatched])
        if self.traced:
            return f"a compiler or tracer of torch made all of {counted(self.traced, 'call')}"
        if self.unrecorded:
            return self._unrecorded()
        return f"no {self.awaited} ran while recording was on"


def write_line(text: str) -> None:
    """Write a line on a recording to standard error, which a program may have closed."""
    with suppress(Exception):
        sys.stderr.write(f"msprobe_hooks: {text}\n")


def described(error: BaseException) -> str:
    """Return the class and the text of an exception, whose own way of saying it may raise as well."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _listed(removed: Counter[str]) -> str:
    return "".join(f", {count} by {name}" for name, count in removed.items())


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
