"""The plan for the calls of a run's processes, and their reports: files in the folder of the run.

``plan.json`` is there first. Each process that imports a framework claims ``calls.<process>`` and writes one line per
call, as it comes, and in ``left.<process>`` one line per API that it leaves as it is, and reason. A process is called
``rank<n>`` where RANK says so, else by its name in Python's multiprocessing; a second one of that name is
``<name>-2``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from multiprocessing import current_process
from pathlib import Path
from typing import IO, Final

import msgspec

from msprobe_hooks.json_decoding import decode_json
from msprobe_hooks.recording.upcasts import Precision

#: The environment variable that holds the folder of the run.
VARIABLE: Final = "MSPROBE_FIX_RUN"
#: The folder whose ``sitecustomize`` has a process that is started with it on PYTHONPATH follow a plan.
AT_START: Final = Path(__file__).parent / "at_start"

_PLAN = "plan.json"
_CALLS = "calls."
_LEFT = "left."


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
