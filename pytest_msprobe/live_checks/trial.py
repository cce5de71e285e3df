"""The trial of a call that the training has made: its target is what the training got, and is not run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.calls.side import Gradients, Run, Side
from pytest_msprobe.engine.replay.calls.subject import Subject
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.results.skips import SkipReason


class ObservedTrial(Trial):
    """A trial whose target has run.

    ``gradients`` are those that the training got for the call's inputs, by path. ``leads`` names for each path the one
    under which its gradient stands: a tensor that is passed twice gets one gradient, their sum.
    """

    def __init__(
        self,
        subject: Subject,
        device: Device,
        *,
        run: Run,
        gradients: Gradients | None = None,
        leads: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(subject, device)
        # The default dtype is the process's: a thread of the training would make tensors in golden's.
        default = torch.get_default_dtype()
        self._golden_side = replace(self._golden_side, default_dtype=default)
        self._baseline_side = replace(self._baseline_side, default_dtype=default)
        self._leads = leads or {}
        self.target = run
        self.target_gradients = gradients or {}
        # What the training drew is judged by what it must be like; a run of ours would not be the training's.
        self.switched_off = None

    def _blame(self, error: Exception) -> SkipReason:
        # The training made the call with these inputs: nothing was rebuilt that an API could reject.
        return SkipReason.NO_GOLDEN

    def _backward(self, run: Run, side: Side) -> Gradients:
        summed: Gradients = {}
        for path, gradient in super()._backward(run, side).items():
            lead = self._leads.get(path)
            if lead is not None and gradient is not None:
                known = summed.get(lead)
                summed[lead] = gradient if known is None else known + gradient
        return summed
