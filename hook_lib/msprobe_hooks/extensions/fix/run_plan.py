"""The plan for the calls of a run's processes: which are fixed, what came of it, and the files of both.

``plan.json`` is there first. Each process that imports a framework claims ``calls.<process>`` and writes one line per
call, as it comes, and in ``left.<process>`` one line per API that it leaves as it is, and reason. A process is called
``rank<n>`` where RANK says so, else by its name in Python's multiprocessing; a second one of that name is
``<name>-2``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from multiprocessing import current_process
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from msprobe_hooks.dump.names import split_direction
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.json_decoding import decode_json
from msprobe_hooks.messages import did_you_mean, listed
from msprobe_hooks.recording.upcasts import PRECISIONS as PRECISIONS
from msprobe_hooks.recording.upcasts import NothingToRaiseError, Precision, UnraisedError

#: The environment variable that holds the folder of the run.
VARIABLE: Final = "MSPROBE_FIX_RUN"
#: The folder whose ``sitecustomize`` has a process that is started with it on PYTHONPATH follow a plan.
AT_START: Final = Path(__file__).parent / "at_start"

_PLAN = "plan.json"
_CALLS = "calls."
_LEFT = "left."

#: Why a call is left as it is that would draw other numbers in another dtype or on another device.
DRAWS: Final = "it draws random numbers"

_CASTS = frozenset(
    {f"Tensor.{name}" for name in "to type type_as half bfloat16 float double chalf cfloat cdouble astype".split()}
    | {"Functional.cast"}
)

_LIBRARY = "torch.ops."

#: Why an operator of a library is left as it is that could be raised.
UNNAMED_LIBRARY: Final = "custom_op_namespaces does not name its library"

_SHOWN = 10


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of each process that are raised, by process; None where all are only to be listed.

    ``tells_stacks`` has a process write the stack of each call that it raises. ``custom_op_namespaces`` are libraries
    whose operators can be raised.
    """

    to: Precision
    raised: dict[str, list[str]] | None = None
    reports_stacks: bool = False
    custom_op_namespaces: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the plan into the folder of a run."""
        (folder / _PLAN).write_bytes(msgspec.json.encode(self))


class RunReport(msgspec.Struct, frozen=True):
    """One line of a process: a call, and its stack from the innermost frame out where that was asked for."""

    call: str
    stack: list[str] = []


class Left(msgspec.Struct, frozen=True, order=True):
    """An API of which calls ran as they are though another precision could change them, and the reason."""

    api: str
    reason: str


def read_plan(folder: Path) -> Plan:
    """Return the plan of a run. Raises OSError or JsonError where there is none."""
    return decode_json((folder / _PLAN).read_bytes(), Plan)


def claim(folder: Path) -> tuple[str, IO[bytes]]:
    """Return the name of this process, which no other of the run has, and the file for its lines."""
    rank = os.environ.get("RANK", "")
    name = f"rank{int(rank)}" if rank.isdecimal() else current_process().name.replace(os.sep, "_")
    for number in range(1, 1_000_000):
        process = name if number == 1 else f"{name}-{number}"
        try:
            return process, (folder / f"{_CALLS}{process}").open("xb", buffering=0)
        except FileExistsError:
            continue
    raise OSError(f"{folder}: too many processes have the name {name}")


def lines_of(folder: Path) -> Mapping[str, list[RunReport]]:
    """Return the reports of each process of a run, by process."""
    return {
        path.name.removeprefix(_CALLS): [decode_json(line, RunReport) for line in path.read_bytes().splitlines()]
        for path in sorted(folder.glob(f"{_CALLS}*"))
    }


def leave(folder: Path, process: str, left: Left) -> None:
    """Write that a process leaves calls of an API as they are."""
    with (folder / f"{_LEFT}{process}").open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(left) + b"\n")


def left_in(folder: Path) -> list[Left]:
    """Return what the processes of a run left as it is, each API and reason once."""
    lines = {line for path in folder.glob(f"{_LEFT}*") for line in path.read_bytes().splitlines()}
    return sorted(decode_json(line, Left) for line in lines)


def problems_of(folder: Path) -> Iterator[str]:
    """Yield what went wrong in processes of a run before they could follow the plan, as tracebacks."""
    for path in sorted(folder.glob("problem.*")):
        yield path.read_text(errors="replace")


def was_seen(folder: Path) -> bool:
    """Return whether any process of a run has read its environment when Python started."""
    return any(folder.glob("python.*"))


def require_computation(qualified: str) -> None:
    """Raise NothingToRaiseError for a cast: its result has the dtype that it names, in whatever precision it runs."""
    if qualified in _CASTS:
        raise NothingToRaiseError("it only casts or moves its argument")


def library_of(qualified: str) -> str | None:
    """Return the library whose operator this is, ``torchvision`` of ``torch.ops.torchvision.nms``; None for others."""
    return qualified.split(".")[2] if qualified.startswith(_LIBRARY) else None


def not_looked_at(error: Exception) -> str:
    """Return the reason for which a call runs as it is where something unforeseen was raised before it."""
    return f"observing it raised {type(error).__name__}"


class Names:
    """The calls that a user named: ``Torch.matmul``, ``Torch.matmul.3``, as a record is called too, ``*`` for anything.

    ``namespaces`` are the libraries whose operators are raised as well. Raises ConfigError where there is no name, or
    one is empty or no text.
    """

    def __init__(self, names: Sequence[str], namespaces: Sequence[str] = ()) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigError("names", names, "a list of names of APIs or calls, such as Torch.matmul.3")
        self._patterns = {name: split_direction(name)[0] for name in names}
        self._unmet = set(names)
        #: The APIs of which calls were seen while names were unmet.
        self.seen: set[str] = set()
        self._namespaces = dict.fromkeys(namespaces)
        self._unmet_namespaces = set(namespaces)

    def admit(self, qualified: str, number: int) -> bool:
        """Return whether a call is named, and remember which names were met."""
        call = f"{qualified}.{number}"
        met = [
            name
            for name, pattern in self._patterns.items()
            if fnmatchcase(call, pattern) or fnmatchcase(qualified, pattern)
        ]
        self._unmet.difference_update(met)
        if self._unmet:
            self.seen.add(qualified)
        if self._unmet_namespaces:
            self._unmet_namespaces.discard(library_of(qualified) or "")
        return bool(met)

    @property
    def namespaces(self) -> set[str]:
        """The libraries whose operators are raised: those given, and ``torchvision`` of ``torch.ops.torchvision.*``."""
        named = {library for name in self._patterns if (library := library_of(name)) is not None}
        return named.union(self._namespaces)

    @property
    def unmet(self) -> list[str]:
        """The names of which no call was seen, as they were given, and ``torch.ops.mylib.*`` for a library."""
        unmet = [name for name in self._patterns if name in self._unmet]
        return unmet + [f"{_LIBRARY}{name}.*" for name in self._namespaces if name in self._unmet_namespaces]


@dataclass(slots=True)
class Fixed:
    """Outcome of fixing, counted by API: calls ``raised``, and calls that ran as they were, with the reason.

    ``unmet`` are the names of which no call was seen, ``seen`` the APIs that were; both are known at the end.
    """

    raised: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    unmet: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set, repr=False)

    def make(self, qualified: str, raised: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """Make a call of this API raised, or where that raises UnraisedError as it is, and count it."""
        try:
            result = raised()
        except UnraisedError as reason:
            self.leave(qualified, reason)
        else:
            self.raised[qualified] += 1
            return result
        # Not where the reason is handled: it would be the context of what the program raises.
        return plain()

    def leave(self, qualified: str, reason: UnraisedError) -> None:
        """Count a call of this API that runs as it is."""
        self.left[qualified, str(reason)] += 1

    def __str__(self) -> str:
        lines = [f"raised {_counted(self.raised)}" if self.raised else "no call was raised"]
        for reason in dict.fromkeys(reason for _, reason in self.left):
            left = Counter({name: count for (name, why), count in self.left.items() if why == reason})
            lines.append(f"not raised, because {reason}: {_counted(left)}")
        lines += [f"{name} was never called{did_you_mean(name, self.seen)}" for name in self.unmet]
        return "; ".join(lines)


def _counted(calls: Counter[str]) -> str:
    return listed((f"{name} ({count})" for name, count in calls.most_common()), _SHOWN)
