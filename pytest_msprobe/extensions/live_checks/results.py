"""Results of live checks (counts, failures, journal, saved cases), and computing without side effects."""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import torch
from torch.autograd.graph import saved_tensors_hooks

from msprobe_hooks.dump.paths.recording import recording_folder
from msprobe_hooks.torch.gradients import saved_tensors_hooks as training_hooks
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_standards.verdict import Verdict
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.live_checks.observed_call import Stack, called_from
from pytest_msprobe.journal.journal import Entry, JournalWriter, LeftOut
from pytest_msprobe.modes.check.cases.case import NO_RECORD
from pytest_msprobe.modes.check.cases.save import CaseOrigin, save_case
from pytest_msprobe.modes.check.cases.saved_case import SavedCase, saved_folder, with_saved
from pytest_msprobe.results.result import DirectionResult, Start
from pytest_msprobe.results.skip_reasons import BaseSkipReason
from pytest_msprobe.storage.limits import SaveOptions


@contextlib.contextmanager
def without_side_effects(*, draws: bool) -> Iterator[None]:
    """Compute here as if outside of the training: its modes reach nothing, and nothing reaches its generators.

    The state of the CPU's default generator is put back where what runs here ``draws``. It is shared by all threads: to
    put it back where nothing was drawn would have a thread that draws meanwhile draw the same numbers again.

    Checkpointing counts the tensors that calls save; those that are saved in here are kept from it.
    """
    state = torch.get_rng_state() if draws else None
    with contextlib.ExitStack() as contexts:
        if torch.is_inference_mode_enabled():
            contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.autocast("cpu", enabled=False))
        if torch.is_anomaly_enabled():
            contexts.enter_context(torch.autograd.set_detect_anomaly(False))
        if training_hooks() is not None:
            contexts.enter_context(saved_tensors_hooks(_same, _same))
        contexts.enter_context(NoDispatch())
        contexts.enter_context(torch.enable_grad())
        try:
            yield
        finally:
            if state is not None and not torch.equal(state, torch.get_rng_state()):
                torch.set_rng_state(state)


@cache
def may_consume_rng(api: str) -> bool:
    """Return whether a function of PyTorch may draw from a default generator, by its name without its type.

    An operator's schema says so; what is no operator may.
    """
    if op_info(api).random is not None:
        return True
    for name in (api.replace(".", "_"), api.partition(".")[0]):
        operator = getattr(torch.ops.aten, name.strip("_"), None)
        if operator is not None:
            schemas = (getattr(operator, overload) for overload in operator.overloads())
            return any(torch.Tag.nondeterministic_seeded in schema.tags for schema in schemas)
    return True


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


_log = logging.getLogger("pytest_msprobe")


class LiveSkip(BaseSkipReason):
    """Reasons for which a call of a running training is not judged."""

    NOT_SEEN = "its gradients could not be distinguished"
    NEVER_JUDGED = "no call of its kind was judged while the training ran"


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy and its level as the user named them."""

    name: str
    level: str | None = None


class Findings:
    """Takes one result after the other; ``command`` is what ran the training."""

    def __init__(
        self, journal: JournalWriter | None, save: SaveOptions | None, policy: NamedPolicy, command: str
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: list[DirectionResult] = []
        self.skips: Counter[str] = Counter()
        self.failure: JournalError | None = None
        #: Where the calls are made, as a folder of a recording: ``step0/rank``.
        self.place = recording_folder(0, None)
        self._journal = journal
        self._save = save
        self._policy = policy
        self._command = command
        self._cards: set[str] = set()
        self._unreported: list[tuple[DirectionResult, Stack]] = []

    def add(
        self, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None, stack: Stack
    ) -> None:
        """Take what came of one record: a failure with where it was called, saved where that is asked for."""
        if result.verdict.outcome == "fail":
            result = replace(result, notes=(called_from(stack), *result.notes))
            if self._save is not None:
                result = with_saved(result, self._saved(self._save, result, replay, forward, backward))
            self.failed.append(result)
            self._unreported.append((result, stack))
        self.counts[result.outcome] += 1
        if result.verdict.outcome == "skip":
            self.skips[result.verdict.reason if result.skip is None else str(result.skip)] += 1
        if self._journal is not None:
            self._write(result, replay)

    def skip(self, place: Path, record: str, detail: str) -> None:
        """Note that neither a record nor any like it was judged."""
        reason = LiveSkip.NEVER_JUDGED
        words = f"{reason.value}: {detail}" if detail else reason.value
        result = DirectionResult(record, Verdict("skip", "", words), skip=reason)
        self.counts["skip"] += 1
        self._append(Entry(f"{place}::{record}", result.outcome, result))

    def leave_out(self, counts: Mapping[str, int]) -> None:
        """Note how many calls and gradients were left out, by reason."""
        self._append(LeftOut(dict(counts)))

    def next_failures(self) -> list[tuple[DirectionResult, Stack]]:
        """Return the failures since this was last asked, with where they were called."""
        unreported, self._unreported = self._unreported, []
        return unreported

    def rerun(self, result: DirectionResult) -> str:
        """Return the command that judges a failed record again: its saved case, else the whole training."""
        folder = saved_folder(result.extras)
        return shlex.join(["pytest-msprobe", "replay", folder]) if folder else self._command

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _write(self, result: DirectionResult, replay: Replay) -> None:
        device, framework = replay.setup.device, replay.setup.framework
        card = card_of(device)
        if card not in self._cards:
            self._cards.add(card)
            self._append(Start(card, framework.describe(device), framework.math_modes(device)))
        self._append(Entry(f"{self.place}::{result.record}", result.outcome, result, card))

    def _append(self, line: Entry | Start | LeftOut) -> None:
        if self._journal is None:
            return
        try:
            self._journal.write(line)
        except JournalError as error:
            _log.error("live check stopped: %s", error)
            self.failure = error
            self.close()

    def _saved(
        self, options: SaveOptions, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None
    ) -> SavedCase:
        backward_body = NO_RECORD if backward is None else msgspec.Raw(backward)
        origin = CaseOrigin(
            self.place, msgspec.Raw(forward), backward_body, self._policy.name, self._policy.level, has_file=False
        )
        with without_side_effects(draws=may_consume_rng(replay.call.name.api)):
            return save_case(replay, result, origin, options)


def card_of(device: Device) -> str:
    """Return the card that a device computes on, such as ``npu:0``.

    MindSpore takes tensors from the CPU and gives them back there, wherever it computes.
    """
    described = device.describe().split()[0]
    return described if described.startswith(f"{device.name}:") else str(device.location())
