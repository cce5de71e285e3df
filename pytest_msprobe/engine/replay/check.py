"""The whole check of one recorded call, without pytest."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.replay.annotators import ANNOTATORS
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import TensorSource
from pytest_msprobe.engine.replay.contiguous_rerun import add_layout_note
from pytest_msprobe.engine.replay.judging.outputs import result_of
from pytest_msprobe.engine.replay.prepared_call import DirectionCheck, PreparedCall, TrialOf
from pytest_msprobe.engine.replay.strategies import BY_POLICY, JudgeForward, Strategy, judge_by, judge_by_first
from pytest_msprobe.engine.replay.trials.baseline_protocol import Recorded
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.results.result import DirectionResult


class Replay:
    """One call being checked. What both directions need is computed once and kept until the replay is dropped.

    ``source`` gives the call's tensors, by element and path, in place of those that the setup says; ``function`` is
    what the call's name refers to, None finds it by the name. ``recorded`` gives what a recorded baseline
    has of a record, by its name; None where there is no recorded baseline. ``trial_of`` makes the trial of the call,
    where its target is not to be run. ``is_given`` says that a test gives all tensors of the call, by ``source``.

    ``raised`` holds the exceptions of ``function``, and of golden for what a test gives, that results are about.
    """

    def __init__(
        self,
        call: Call,
        setup: ReplayConfig,
        source: TensorSource | None = None,
        function: Callable[..., Any] | None = None,
        recorded: Callable[[str], Recorded] | None = None,
        trial_of: TrialOf | None = None,
        *,
        is_given: bool = False,
    ) -> None:
        self._prepared = PreparedCall(call, setup, source, function, recorded, trial_of, is_given=is_given)
        self.call = self._prepared.call
        self.setup = setup
        self.raised: list[BaseException] = []
        # An exception keeps the tensors of its frames: one is kept for a test alone, which shows it.
        self._kept_causes = None if function is None else self.raised

    @property
    def trial(self) -> Trial:
        """The three runs of the call. Raises Skip where the call cannot be rebuilt."""
        return self._prepared.trial

    @property
    def contiguous_trial(self) -> Trial:
        """The trial of the same call on contiguous tensors, this one where none was recorded to lie otherwise."""
        return self._prepared.contiguous().trial if self._prepared.has_layouts else self.trial

    def again(self) -> Replay:
        """Return the replay of the same call on the same values, of which nothing is computed yet."""
        again = copy.copy(self)
        again._prepared = self._prepared.again()
        again.raised = []
        again._kept_causes = None if self._kept_causes is None else again.raised
        return again

    def judge(self, direction: Direction) -> DirectionResult:
        """Check the record of one direction."""
        return self.forward() if direction == "forward" else self.backward()

    def forward(self, judge: JudgeForward | None = None) -> DirectionResult:
        """Check the forward record, by the policy or by another judge of its trial."""
        return self._check("forward", BY_POLICY if judge is None else (judge_by(judge),))

    def backward(self) -> DirectionResult:
        """Check the backward record, running the forward call first where that has not been done."""
        return self._check("backward", BY_POLICY)

    def input_tensors(self, direction: Direction) -> dict[str, torch.Tensor]:
        """Return the CPU tensors that one direction computes with, by path: ``args.0``, ``kwargs.weight``, ``grad.0``.

        Raises Skip and TargetError where the gradients that arrive cannot be made.
        """
        return input_tensors(self.trial, direction)

    def _check(self, direction: Direction, strategies: Sequence[Strategy]) -> DirectionResult:
        # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
        with suppress_warnings():
            record = f"{self.call.name.key}.{direction}"
            check = DirectionCheck(self._prepared, direction, self._prepared.recorded(record))
            result = result_of(record, functools.partial(judge_by_first, strategies, check), self._kept_causes)
            for annotate in ANNOTATORS:
                result = annotate(result, check)
            result = add_layout_note(result, check, strategies)
            self._prepared.drop_spent_trial()
            return result


def has_golden(replay: Replay, direction: Direction) -> bool:
    """Return whether the golden run of a call can be made, or its gradients be computed."""
    try:
        _ = replay.trial.golden if direction == "forward" else replay.trial.golden_gradients
    except Exception:
        return False
    return True


def input_tensors(trial: Trial, direction: Direction) -> dict[str, torch.Tensor]:
    """Return the CPU tensors that one direction of a trial computes with, by path; see `Replay.input_tensors`."""
    tensors = dict(trial.subject.arguments.tensors())
    if direction == "backward":
        tensors |= {f"grad.{path}": gradient for path, gradient in trial.grad_outputs.items()}
    return tensors
