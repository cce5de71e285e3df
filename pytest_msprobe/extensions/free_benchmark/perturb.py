"""Perturbed runs of a judged call, as a step after the verdict: how far results deviate, in reports and in a table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from msprobe_hooks.dump.names import Direction
from msprobe_hooks.dump.recording_paths import dump_at, step_rank
from msprobe_hooks.extensions.free_benchmark.argument_changes import Deviation, NotPerturbedError, Output, outputs_of
from msprobe_hooks.extensions.free_benchmark.recorder import FILE_NAME, HEADER, row
from msprobe_hooks.extensions.free_benchmark.torch_perturbations import deviations, perturb
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Subject, TargetError
from pytest_msprobe.engine.replay.reruns.determinism import nondeterminism_reason
from pytest_msprobe.engine.replay.reruns.differences import PASSED_AGAIN
from pytest_msprobe.engine.replay.trials.rng import draws_undeclared_randomness, run_seeded
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.journal.journal import Journal
from pytest_msprobe.modes.check.follow_up import Judged, can_run_again
from pytest_msprobe.reports.csv import as_text, places
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.result import ACCURACY, DirectionResult, decode_extra
from pytest_msprobe.results.skip_reasons import Skip, SkipReason
from pytest_msprobe.storage.atomic_write import atomic_write

# From the same seed, other numbers are drawn in another dtype or elsewhere.
_CHANGES_WHAT_IS_DRAWN = ("improve_precision", "to_cpu")

_PERTURBED = "perturbed"

# How many of the APIs that changed too much are listed.
_SHOWN = 5

_ESCAPED = "backslashreplace"


def perturbed_call(trial: Trial, direction: Direction, perturbation: str) -> Perturbed:
    """Run the call of a judged trial with perturbed inputs, and say which of the device's results deviate too far.

    What the call draws comes from the same seed. Inputs that cannot be perturbed, or that the call then rejects, are
    reported. Raises Skip and TargetError where the unperturbed call does.
    """
    perturbed = partial(Perturbed, trial.subject.key.rpartition(".")[0], perturbation, direction)
    original = _results(trial, direction)
    try:
        again = _perturbed(trial, perturbation)
        if draws_undeclared_randomness(again):
            _require_same_draws(perturbation)
            original = _results(Trial(trial.subject, trial.device), direction)
        found = deviations(perturbation, original, _results(again, direction), is_gradient=direction == "backward")
        deviates = perturbation != "no_change" and not all(each.is_consistent for each in found)
        cause = _other_cause(original, trial, again, direction, perturbation) if deviates else ""
    except NotPerturbedError as error:
        return perturbed(left_out=str(error))
    except Skip as skip:
        return perturbed(left_out=f"with perturbed inputs, {skip.reason.value}")
    except TargetError:
        return perturbed(left_out="the call raises with perturbed inputs")
    ratio = max((deviation.ratio for deviation in found if deviation.ratio is not None), default=None)
    inconsistent = tuple(_inconsistent(deviation) for deviation in found if not deviation.is_consistent)
    left_out = "" if found else "no result that could be compared"
    return perturbed(ratio=ratio, inconsistent=inconsistent, left_out=left_out, again=cause)


def _other_cause(original: list[Output], trial: Trial, changed: Trial, direction: Direction, perturbation: str) -> str:
    """Return what shows that a perturbation is not why a result changes: the original and the changed call run again.

    Empty where nothing does.
    """

    def is_consistent(change: str, call: Trial) -> bool:
        results = _results(Trial(call.subject, call.device), direction)
        found = deviations(change, original, results, is_gradient=direction == "backward")
        return all(each.is_consistent for each in found)

    if not is_consistent("no_change", trial):
        return "a second run that is not perturbed differs as well"
    return PASSED_AGAIN if is_consistent(perturbation, changed) else ""


def _perturbed(trial: Trial, perturbation: str) -> Trial:
    subject = trial.subject
    if trial.randomness is not None:
        _require_same_draws(perturbation)
    args, kwargs = perturb(perturbation, subject.arguments.args, subject.arguments.kwargs)
    changed = replace(subject, arguments=replace(subject.arguments, args=args, kwargs=kwargs))
    if perturbation == "to_cpu":
        return Trial(replace(changed, target=subject.golden, autocast=None), CpuDevice())
    if perturbation == "improve_precision":
        return Trial(replace(changed, autocast=None), trial.device)
    if perturbation != "no_change":
        _require_accepted(changed, trial)
    return Trial(changed, trial.device)


def _require_same_draws(perturbation: str) -> None:
    if perturbation in _CHANGES_WHAT_IS_DRAWN:
        raise NotPerturbedError("draws random numbers, which would then be others")


def _require_accepted(changed: Subject, trial: Trial) -> None:
    """Raise Skip for inputs that the CPU rejects: on an accelerator they can end its context, and with it the run."""
    if trial.device.location().type == "cpu":
        return
    try:
        _ = Trial(changed, trial.device).golden
    except Skip as skip:
        if skip.reason is SkipReason.REJECTED_INPUTS:
            raise


def _results(trial: Trial, direction: Direction) -> list[Output]:
    """Return what a direction gives on the device, on the CPU: a call's results, or the gradients of its inputs."""
    run_seeded(trial)
    results = trial.target.results if direction == "forward" else list(trial.target_gradients.values())
    return [(index, map_tensors(trial.device.get, output)) for index, output in outputs_of(results)]


def _inconsistent(found: Deviation) -> _InconsistentOutput:
    return _InconsistentOutput(found.index, found.dtype, found.shape, found.ratio, found.threshold, found.flips_sign)


class Perturb:
    """Perturbs each call by the perturbation of that name.

    A result that changes too much is a warning and no failure: a right kernel does the same where the call is
    ill-conditioned. So is msprobe's handler ``check``, which reports and goes on with the original result.
    """

    def __init__(self, perturbation: str) -> None:
        self._perturbation = perturbation

    def __call__(self, judged: Judged) -> DirectionResult:
        """Perturb a call that runs on the device."""
        if not can_run_again(judged.result):
            return judged.result
        replay = judged.replay
        left_out = nondeterminism_reason(replay.trial, replay.setup.framework.name)
        if left_out:
            api = replay.call.name.qualified_api
            return _with_perturbed(
                judged.result, Perturbed(api, self._perturbation, judged.direction, left_out=left_out)
            )
        # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
        with suppress_warnings():
            try:
                perturbed = perturbed_call(replay.trial, judged.direction, self._perturbation)
            except (Skip, TargetError):
                # What golden could not judge does not run here either.
                return judged.result
        return _reported(judged.result, perturbed)


def _reported(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    outcome = result.verdict.outcome
    if not perturbed.inconsistent:
        return _with_perturbed(result, perturbed)
    if outcome == "fail":
        reported = _with_perturbed(result, perturbed)
        return replace(reported, notes=(*reported.notes, f"It is sensitive as well: {perturbed}"))
    reported = _with_perturbed(result, perturbed).with_extra(ACCURACY, outcome)
    # Standard, metrics and margin stay those of the accuracy.
    reason = "; ".join(filter(None, (result.verdict.reason, str(perturbed))))
    return replace(reported, verdict=replace(result.verdict, outcome="warn", reason=reason), skip=None)


class _InconsistentOutput(msgspec.Struct, frozen=True):
    """An output that changed by more than it should; ``index`` is its place among several.

    ``ratio`` of its two values is over ``threshold``; both are None where no ratio judges, or where a sign flipped.
    """

    index: int | None
    dtype: str
    shape: tuple[int, ...]
    ratio: float | None = None
    threshold: float | None = None
    flips_sign: bool = False

    def __str__(self) -> str:
        place = "the result" if self.index is None else f"result {self.index}"
        if self.flips_sign:
            return f"{place} changes its sign"
        if self.ratio is None:
            return f"{place} changes by more than its dtype's precision"
        return f"{place} changes by a ratio of {self.ratio:.7g}, where {self.threshold:.7g} is allowed"


class Perturbed(msgspec.Struct, frozen=True):
    """A call of ``api``, perturbed at a ``stage``, forward or backward: the largest ratio, and what changed too much.

    ``again`` says what else further runs came to, where the perturbation is not the cause. ``left_out`` is why it was
    not perturbed.
    """

    api: str
    perturbation: str
    stage: str
    ratio: float | None = None
    inconsistent: tuple[_InconsistentOutput, ...] = ()
    left_out: str = ""
    again: str = ""

    def __str__(self) -> str:
        again = [self.again] if self.again else []
        return f"perturbed by {self.perturbation}, {'; '.join([*map(str, self.inconsistent), *again])}"


def _with_perturbed(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    """Return a result with what came of perturbed inputs."""
    result = result.with_extra(_PERTURBED, msgspec.to_builtins(perturbed))
    return result.with_property(_PERTURBED, str(perturbed)) if perturbed.inconsistent else result


def _perturbed_of(extras: Mapping[str, Any]) -> Perturbed | None:
    """Return what the extras of a result say of perturbed inputs."""
    return decode_extra(extras, _PERTURBED, Perturbed)


class PerturbedTally:
    """Counts, for the summary, what was perturbed, which APIs changed too much, and why others were not perturbed."""

    def __init__(self) -> None:
        self._perturbation = ""
        self._perturbed = 0
        self._inconsistent: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        perturbed = _perturbed_of(extras)
        if perturbed is None:
            return
        self._perturbation = perturbed.perturbation
        if perturbed.left_out:
            self._left_out[perturbed.left_out] += 1
            return
        self._perturbed += 1
        self._inconsistent.update([perturbed.api] if perturbed.inconsistent else [])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._perturbation:
            return []
        changed = self._inconsistent.total()
        lines = [f"{self._perturbed} perturbed by {self._perturbation}, {changed} of them changed too much"]
        lines += [f"  {count} {api}" for api, count in self._inconsistent.most_common(_SHOWN)]
        hidden = len(self._inconsistent) - _SHOWN
        lines += [f"  and {hidden} more"] if hidden > 0 else []
        return lines + [f"  {count} not perturbed: {reason}" for reason, count in self._left_out.most_common()]


class FreeBenchmarkTables:
    """The tables below a folder, one for each dump, next to its other tables."""

    def __init__(self, folder: Path, dumps: Collection[Path]) -> None:
        self._files = {dump: folder / place / FILE_NAME for dump, place in places(dumps).items()}
        self._rows: dict[Path, list[list[Any]]] = {path: [] for path in self._files.values()}

    def add(self, dump: Path, record: str, extras: Mapping[str, Any]) -> None:
        """Keep the rows of a record of a dump."""
        perturbed = _perturbed_of(extras)
        if perturbed is not None:
            self._rows[self._files[dump]] += [
                _row(dump, record, perturbed, output) for output in perturbed.inconsistent
            ]

    def close(self) -> list[Path]:
        """Write each table that has a row, and one without where an earlier run left its own; return which."""
        due = {path: rows for path, rows in self._rows.items() if rows or path.exists()}
        for path, rows in due.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="", errors=_ESCAPED) as file:
                csv.writer(file).writerows([HEADER, *rows])
        return list(due)


def _row(dump: Path, record: str, perturbed: Perturbed, output: _InconsistentOutput) -> list[Any]:
    where = step_rank(dump)
    place = (where.rank, perturbed.perturbation, perturbed.stage, where.step, as_text(record))
    return row(place, output.ratio, output.dtype, output.shape, output.index, flips_sign=output.flips_sign)


def write_tables(journal: Journal, folder: Path) -> None:
    """Write the tables of a run of which there is a journal. Raises OSError."""
    tables = FreeBenchmarkTables(folder, journal.dumps)
    for entry in journal.entries.values():
        if not entry.command:
            tables.add(journal.dump_of(entry), entry.result.record, entry.result.extras)
    tables.close()


class FreeBenchmarkReport:
    """Writes the tables of a run when it ends."""

    hears_finished = True

    def __init__(self, folder: Path, dumps: Collection[Path], root: Path) -> None:
        self._folder = folder
        self._root = root
        self._dumps = frozenset(dumps)
        self._tables = FreeBenchmarkTables(folder, dumps)
        self._written: list[Path] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is known of one record."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            dump = dump_at(self._root / report.nodeid.partition("::")[0], self._dumps)
            self._tables.add(dump, plain["record"], plain["extras"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the tables; a run that loses them does not end as if it had them."""
        try:
            self._written = self._tables.close()
        except OSError as error:
            self._problem = f"{FILE_NAME}: {cannot_be_written(self._folder, error)}"
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the tables are, or why there are none."""
        if self._problem:
            terminalreporter.line(f"ERROR: {self._problem}", red=True)
        for path in self._written:
            terminalreporter.line(f"msprobe table: {path}")
