"""Telling which verdicts say little of a card, because the CPU computed what it has no kernel for."""

from __future__ import annotations

from dataclasses import replace

from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.reruns.cpu_fallback import has_cpu_fallback, ops_without_kernel
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.follow_up import Judged
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult
from pytest_msprobe.results.skip_reasons import Skip


class ReportLeftToCpu:
    """Runs a judged call once more, watched, and says what the card left to the CPU.

    It does so once for a function, dtypes, dimensions and other arguments: calls that share them use the same kernels.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def __call__(self, judged: Judged) -> DirectionResult:
        """Return the result of a judged call, with the operators that the card left to the CPU."""
        setup, result = judged.replay.setup, judged.result
        if not result.outputs or setup.framework.name != PYTORCH or not has_cpu_fallback(setup.device.location()):
            return result
        operators = self._operators(judged)
        if not operators:
            return result
        reason = f"the card has no {', '.join(operators)}: computed by the CPU"
        if result.verdict.outcome == "fail":
            return replace(result, notes=(*result.notes, f"{reason[0].upper()}{reason[1:]}."))
        little = "; ".join(filter(None, (reason, result.extras.get(LITTLE_JUDGED))))
        return result.with_extra(LITTLE_JUDGED, little)

    def _operators(self, judged: Judged) -> tuple[str, ...]:
        trial = judged.replay.trial
        kind = _kind(trial, judged)
        if kind not in self._known:
            with suppress_warnings():
                try:
                    self._known[kind] = ops_without_kernel(trial, judged.direction)
                except (Skip, TargetError):
                    return ()
                except Exception as error:
                    # There was room for one run; that there is none for a second takes no verdict back.
                    if not is_out_of_memory(error):
                        raise
                    return ()
        return self._known[kind]


def _kind(trial: Trial, judged: Judged) -> tuple[object, ...]:
    """Return what decides which kernels a call uses."""
    subject = trial.subject
    given = [subject.arguments.args, subject.arguments.kwargs]
    arguments = map_tensors(lambda tensor: (tensor.dtype, tensor.dim(), tensor.layout), given)
    return judged.replay.call.name.qualified_api, judged.direction, subject.autocast, repr(arguments)
