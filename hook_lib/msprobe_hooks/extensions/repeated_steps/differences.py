"""Differences between repeated steps, as text and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from msprobe_hooks.dump.writer import make_folder, write_error
from msprobe_hooks.messages import counted, listed

Kind = Literal["wrong", "nondeterministic", "not_repeatable", "received", "replicas"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The first call of a step whose passes differ; ``number`` counts from 0 in the order of the pass.

    ``digests`` are those of its results in the passes, as 16 hexadecimal digits. ``repetitions`` were made of it on
    the same inputs, of which ``differing`` gave other bits than the third pass. ``dump`` is a recording of it.
    """

    number: int
    count: int
    operator: str
    module: str = ""
    source: str = ""
    is_backward: bool = False
    digests: list[list[str]] = []
    repetitions: int = 0
    differing: int = 0
    dump: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose passes, or whose ranks, differ.

    ``kind`` is ``wrong`` (a fault of this card), ``nondeterministic`` (torch documents the operator as such),
    ``not_repeatable`` (the function does something else each time), ``received`` (another rank's fault) or
    ``replicas`` (parameters of data-parallel ranks differ). ``odd_pass`` is the pass that the other two disagree with,
    counted from 1. ``values`` name what differs: the result, gradients, buffers.
    """

    kind: Kind
    step: int
    micro_batch: int
    rank: int | None
    host: str
    card: str
    reason: str
    values: list[str]
    odd_pass: int | None = None
    odd_ranks: list[int] = []
    call: Call | None = None

    def __str__(self) -> str:
        rank = "" if self.rank is None else f" on rank {self.rank}"
        return f"step {self.step}{rank} ({self.card} of {self.host}): {self.reason}"


class Report(msgspec.Struct, kw_only=True):
    """Outcome of the repeated steps of one process: how many were watched, and what differs.

    ``undefined`` names operators with a result that is not compared, because they do not write to all of its memory.
    ``other_calls`` counts the steps whose passes make other calls from some place on, where no more are compared.
    ``not_seen`` says why no calls are compared, if none are.
    """

    rank: int | None
    host: str
    card: str
    watched: int = 0
    calls: int = 0
    undefined: list[str] = []
    other_calls: int = 0
    not_seen: str = ""
    compares_replicas: bool = False
    differences: list[Difference] = []

    def write(self, folder: Path) -> None:
        """Write the report into ``folder/repeats{rank}.json``, over the former one. Raises RecordingError."""
        make_folder(folder)
        path = folder / f"repeats{'' if self.rank is None else self.rank}.json"
        part = path.with_name(f"{path.name}.part")
        try:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
            part.replace(path)
        except OSError as error:
            raise write_error(path, "written", error) from None

    def __str__(self) -> str:
        found = counted(len(self.differences), "difference") if self.differences else "no difference"
        calls = f", {counted(self.calls, 'call')} in the last" if self.calls else ""
        lines = [f"repeated steps: {counted(self.watched, 'step')} computed twice{calls}: {found}"]
        lines += [f"  calls not compared: {self.not_seen}"] if self.not_seen else []
        lines += [] if self.compares_replicas else ["  parameters not compared over ranks: no data-parallel group"]
        if self.other_calls:
            lines.append(f"  compared up to the first other call: the passes of {counted(self.other_calls, 'step')}")
        lines += [f"  memory left undefined by: {listed(self.undefined)}"] if self.undefined else []
        return "\n".join([*lines, *(f"  {each}" for each in self.differences)])


def as_hex(digests: tuple[int, ...]) -> list[str]:
    """Return digests as 16 hexadecimal digits each."""
    return [f"{number % 2**64:016x}" for number in digests]
