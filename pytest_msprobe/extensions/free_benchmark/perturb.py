"""Perturbed runs of a judged call, as a step after the verdict."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from msprobe_hooks.dump.names import Direction
from msprobe_hooks.extensions.free_benchmark.argument_changes import Deviation, NotPerturbedError, Output, outputs_of
from msprobe_hooks.extensions.free_benchmark.torch_perturbations import deviations, perturb
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Subject, TargetError
from pytest_msprobe.engine.replay.determinism import nondeterminism_reason
from pytest_msprobe.engine.replay.rerun_differences import PASSED_AGAIN
from pytest_msprobe.engine.replay.trials.rng import draws_undeclared_randomness, run_seeded
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.extensions.free_benchmark.perturb_table import InconsistentOutput, Perturbed, with_perturbed
from pytest_msprobe.modes.check.follow_ups import Judged, can_run_again
from pytest_msprobe.results.outcomes import Skip, SkipReason
from pytest_msprobe.results.result import ACCURACY, DirectionResult

# From the same seed, other numbers are drawn in another dtype or elsewhere.
_CHANGES_WHAT_IS_DRAWN = ("improve_precision", "to_cpu")


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
        measured = deviations(perturbation, original, _results(again, direction), is_gradient=direction == "backward")
        deviates = perturbation != "no_change" and not all(one.is_consistent for one in measured)
        cause = _other_cause(original, trial, again, direction, perturbation) if deviates else ""
    except NotPerturbedError as error:
        return perturbed(left_out=str(error))
    except Skip as skip:
        return perturbed(left_out=f"with perturbed inputs, {skip.reason.value}")
    except TargetError:
        return perturbed(left_out="the call raises with perturbed inputs")
    ratio = max((deviation.ratio for deviation in measured if deviation.ratio is not None), default=None)
    inconsistent = tuple(_inconsistent(deviation) for deviation in measured if not deviation.is_consistent)
    left_out = "" if measured else "no result that could be compared"
    return perturbed(ratio=ratio, inconsistent=inconsistent, left_out=left_out, again=cause)


def _other_cause(original: list[Output], trial: Trial, changed: Trial, direction: Direction, perturbation: str) -> str:
    """Return what shows that a perturbation is not why a result changes: the original and the changed call run again.

    Empty where nothing does.
    """

    def is_consistent(change: str, call: Trial) -> bool:
        results = _results(Trial(call.subject, call.device), direction)
        measured = deviations(change, original, results, is_gradient=direction == "backward")
        return all(deviation.is_consistent for deviation in measured)

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


def _inconsistent(deviation: Deviation) -> InconsistentOutput:
    return InconsistentOutput(
        deviation.index, deviation.dtype, deviation.shape, deviation.ratio, deviation.threshold, deviation.flips_sign
    )


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
            return with_perturbed(
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
        return with_perturbed(result, perturbed)
    if outcome == "fail":
        reported = with_perturbed(result, perturbed)
        return replace(reported, notes=(*reported.notes, f"It is sensitive as well: {perturbed}"))
    reported = with_perturbed(result, perturbed).with_extra(ACCURACY, outcome)
    # Standard, metrics and margin stay those of the accuracy.
    reason = "; ".join(filter(None, (result.verdict.reason, str(perturbed))))
    return replace(reported, verdict=replace(result.verdict, outcome="warn", reason=reason), skip=None)
