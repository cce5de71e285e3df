"""Differences between repeated steps, with their causes, as text and as JSON."""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.dump.writer import make_folder, write_error
from msprobe_hooks.errors import ConfigError, DifferingStepError, RecordingError
from msprobe_hooks.messages import counted, listed
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.recorder import Recorder

_log = logging.getLogger("msprobe_hooks")

OnDifference = Literal["warn", "stop"]
Kind = Literal["wrong", "nondeterministic", "not_repeatable", "received", "replicas"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The first call of a step whose passes differ; ``number`` counts from 0 in the order of the pass.

    ``digests`` are those of its results in the passes, as 16 hexadecimal digits. ``repetitions`` were made of it on
    the same inputs, of which ``differing`` gave other bits than the third pass. ``dump`` is a recording of it, and
    ``wrong_dump`` one that has the results of the odd pass; ``wrong_values`` says in words what these are.
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
    wrong_dump: str | None = None
    wrong_values: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose passes, or whose ranks, differ.

    ``kind`` is ``wrong`` (a fault of this card), ``nondeterministic`` (torch documents the operator as such),
    ``not_repeatable`` (the function does something else each time), ``received`` (another rank's fault) or
    ``replicas`` (parameters of data-parallel ranks differ). ``odd_pass`` is the pass that the other two disagree with,
    counted from 1. ``values`` name what differs: the result, gradients, buffers; of the step of an ``optimizer``, by
    its class, parameters and state.
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
    optimizer: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"

    @property
    def place(self) -> str:
        """Return the step, the rank and the card in words."""
        rank = "" if self.rank is None else f" on rank {self.rank}"
        return f"step {self.step}{rank} ({self.card} of {self.host})"

    @property
    def summary(self) -> str:
        """Return the kind of the difference and where it begins, in a few words."""
        place = f"optimizer {self.optimizer}" if self.optimizer else self.call.operator if self.call else ""
        return f"{self.kind}, {place}" if place else self.kind


class Report(msgspec.Struct, kw_only=True):
    """Outcome of the repeated steps of one process: how many were watched, and what differs.

    ``undefined`` names operators with a result that is not compared, because they do not write to all of its memory.
    ``other_calls`` counts the steps whose passes make other calls from some place on, where no more are compared.
    ``not_seen`` says why no calls are compared, if none are. ``optimizer_steps`` counts the steps of optimizers that
    were computed twice; None where no optimizer was passed. ``replicas_not_seen`` says why parameters are not compared
    over ranks, if they are not, ``optimizer_not_seen`` why no optimizer is. ``closures`` counts the steps of optimizers
    that compute gradients, ``compiled_steps`` those that torch.compile has compiled, which are not computed twice where
    several processes may communicate in them. ``compiled`` are compiled functions and optimizers, whose calls are not
    seen, and ``not_put_back`` random operators of MindSpore that drew other numbers in each pass.
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
    replicas_not_seen: str = "no data-parallel group"
    compiled: list[str] = []
    not_put_back: list[str] = []
    optimizer_steps: int | None = None
    optimizer_not_seen: str = "not passed, as in replay_step(model, optimizer=optimizer)"
    closures: int = 0
    compiled_steps: int = 0
    differences: list[Difference] = []

    def write(self, folder: Path) -> None:
        """Write the report into ``folder/repeats{rank}.json``, over the former one. Raises RecordingError."""
        make_folder(folder)
        path = self.file(folder)
        part = path.with_name(f"{path.name}.part")
        try:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
            part.replace(path)
        except OSError as error:
            raise write_error(path, "written", error) from None

    def finish(self, folder: Path, earlier: int, on_difference: OnDifference) -> None:
        """Write the report, and log what was found since there were so many differences.

        Raises DifferingStepError for it where that is asked for, RecordingError where the disk refuses.
        """
        self.write(folder)
        differences = self.differences[earlier:]
        for difference in differences:
            _log.warning("%s: %s; %s", difference.place, difference.summary, self.file(folder))
        if differences and on_difference == "stop":
            raise DifferingStepError("; ".join(map(str, differences)))

    def place(self, step: int, micro_batch: int) -> Callable[..., Difference]:
        """Return what makes the differences of one call of the function."""
        return partial(
            Difference,
            step=step,
            micro_batch=micro_batch,
            rank=self.rank,
            host=self.host,
            card=self.card,
        )

    def file(self, folder: Path) -> Path:
        """Return the file of this process."""
        return folder / f"repeats{'' if self.rank is None else self.rank}.json"

    def __str__(self) -> str:
        result = counted(len(self.differences), "difference") if self.differences else "no difference"
        calls = f", {counted(self.calls, 'call')} in the last" if self.calls else ""
        lines = [f"repeated steps: {counted(self.watched, 'step')} computed twice{calls}: {result}"]
        lines += [f"  calls not compared: {self.not_seen}"] if self.not_seen else []
        lines.append(f"  {self._optimizer_line()}")
        lines += [] if self.compares_replicas else [f"  parameters not compared over ranks: {self.replicas_not_seen}"]
        if self.other_calls:
            lines.append(f"  compared up to the first other call: the passes of {counted(self.other_calls, 'step')}")
        lines += [f"  compared as wholes, as they are compiled: {listed(self.compiled)}"] if self.compiled else []
        lines += [f"  random numbers not put back: {listed(self.not_put_back)}"] if self.not_put_back else []
        lines += [f"  memory left undefined by: {listed(self.undefined)}"] if self.undefined else []
        return "\n".join([*lines, *(f"  {difference}" for difference in self.differences)])

    def _optimizer_line(self) -> str:
        if self.optimizer_steps is None:
            return f"optimizer not compared: {self.optimizer_not_seen}"
        left_out = [f"{counted(self.closures, 'step')} with a closure"] if self.closures else []
        left_out += [f"{counted(self.compiled_steps, 'compiled step')} of several ranks"] if self.compiled_steps else []
        not_compared = f"; not compared: {listed(left_out)}" if left_out else ""
        return f"optimizer: {counted(self.optimizer_steps, 'step')} computed twice{not_compared}"


def number_digest(value: Any) -> int | None:
    """Return the digest of a number's bits; None of anything else."""
    if isinstance(value, (bool, int)):
        return int.from_bytes(hashlib.blake2b(str(int(value)).encode(), digest_size=8).digest(), "little", signed=True)
    return int(struct.unpack("<q", struct.pack("<d", value))[0]) if isinstance(value, float) else None


def as_hex(digests: tuple[int, ...]) -> list[str]:
    """Return digests as 16 hexadecimal digits each."""
    return [f"{number % 2**64:016x}" for number in digests]


def wrong_elements(wrong: Array, right: Array, shape: Sequence[int], value: Callable[[int], tuple[Any, Any]]) -> str:
    """Return how many elements have other bits, and where the first is, with its bits; empty where all are equal.

    Args:
        wrong: The bytes of the elements, uint8 of (elements, bytes of each).
        right: Those that they should be.
        shape: The shape of the result that the elements are of.
        value: Returns the wrong and the right value of an element by its number.
    """
    places = (wrong != right).any(1).nonzero()[0]
    if not len(places):
        return ""
    first = int(places[0])
    index = [int(number) for number in np.unravel_index(first, shape)]
    flipped = int.from_bytes((wrong[first] ^ right[first]).tobytes(), "little")
    numbers = [str(number) for number in range(8 * right.shape[1]) if flipped >> number & 1]
    which = f"{'bit' if len(numbers) == 1 else 'bits'} {', '.join(numbers)}"
    where = f"{len(places)} of {counted(len(right), 'element')}, first {index}"
    one, other = value(first)
    return f"{where}: {one:.6g} for {other:.6g}, {which}"


def other_shape(wrong: Sequence[int], right: Sequence[int]) -> str:
    """Return that a result has another shape."""
    return f"of shape {tuple(wrong)} for {tuple(right)}"


def flipped_bit(wrong: int, right: int, size: int) -> int | None:
    """Return which bit of one element, of ``size`` bytes, two digests differ by; None where it is not one bit."""
    difference = abs((wrong - right + 2**63) % 2**64 - 2**63)
    is_power = difference > 0 and difference & (difference - 1) == 0
    return (difference.bit_length() - 1) % (8 * size) if is_power else None


def not_kept(wrong_digests: Sequence[int], digests: Sequence[int], sizes: Sequence[int]) -> str:
    """Return what digests say of wrong results that were not kept; ``sizes`` are the bytes of their elements."""
    pairs = zip(wrong_digests, digests, sizes, strict=False)
    bits = [flipped_bit(wrong, right, size) for wrong, right, size in pairs if wrong != right]
    bit = f": by their digests, bit {bits[0]} of one element" if len(bits) == 1 and bits[0] is not None else ""
    return f"wrong values not kept (keep_values=True keeps them){bit}"


def save_case(
    place: Difference,
    call: Any,
    wrong: Sequence[Any] | None,
    folder: Path,
    part: str,
    open_recorder: Callable[[Path], Recorder],
) -> tuple[str | None, str | None]:
    """Record a repetition of a call with its tensors, and one that has the ``wrong`` results; return their folders.

    They are ``folder`` and another next to it, not inside, where a check of all calls would find what is wrong by
    intent; ``part`` is a folder in both. None, with a warning, where a recording is not possible.
    """

    def recorded(into: Path, results: Sequence[Any] | None) -> str | None:
        try:
            recorder = open_recorder(into)
            recorder.step = place.step
            recorder.start(place.rank)
            try:
                call.record(recorder, results)
            finally:
                recorder.close()
        except (RecordingError, ConfigError) as error:
            _log.warning("the call is not saved: %s", error)
            return None
        return str(into / recording_folder(place.step, place.rank)) if recorder.summary.calls else None

    right = recorded(folder / part, None)
    if right is None or wrong is None:
        return right, None
    return right, recorded(folder.with_name(f"{folder.name}-wrong") / part, wrong)
