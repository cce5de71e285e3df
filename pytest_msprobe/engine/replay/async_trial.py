"""A trial whose target a card computes while the CPU computes golden.

A card's calls return before it has computed them. So the target's run is launched, golden is computed meanwhile, and
only then is the card waited for.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.devices.accelerator import Accelerator, launching
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.calls.side import Gradients, Run
from pytest_msprobe.engine.replay.calls.subject import Subject
from pytest_msprobe.engine.replay.trials.trial import Trial, on_target
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice
from pytest_msprobe.extensions.screening.matmul_structure import structure_of

_Result = TypeVar("_Result")

_TARGETS = {"forward": "target", "backward": "target_gradients"}


def trial_on(device: Device) -> Callable[..., Trial]:
    """Return what makes a trial for a device: one that launches its target where the device's calls can be."""
    card = launching(device)
    return Trial if card is None else functools.partial(LaunchingTrial, card=card)


class LaunchingTrial(Trial):
    """A trial on a ``card`` that computes while the CPU does.

    Golden comes first so that no device is given what the CPU rejects. Hence the forward runs that are launched are
    those of products, which no CPU rejects whose shapes and dtypes fit; gradients follow golden's forward run.
    """

    def __init__(
        self, subject: Subject, device: Device, baseline: RemoteDevice | None = None, *, card: Accelerator
    ) -> None:
        super().__init__(subject, device, baseline)
        self._card = card
        self._launching_side = replace(self._target_side, invoke=card.launch)
        self._launched: dict[Direction, Callable[[], Any]] = {}

    @functools.cached_property
    def golden(self) -> Run:
        """The run in raised precision, while the target's product runs. Raises Skip where the CPU cannot make it."""
        subject = self.subject
        if structure_of(subject.operation, subject.arguments) is None:
            return super().golden
        with self._beside("forward", lambda: self._forward(subject.target, self._launching_side)):
            return super().golden

    @functools.cached_property
    def golden_gradients(self) -> Gradients:
        """The gradients of the golden run, while the target runs. Raises Skip where the CPU cannot compute them."""
        _ = self.golden
        with contextlib.suppress(*REFUSALS):
            # Without them nothing is launched; why there are none is reported by golden's.
            _ = self.grad_outputs
        with self._beside("backward", lambda: self._backward(self.target, self._launching_side)):
            return super().golden_gradients

    @functools.cached_property
    def target(self) -> Run:
        """The run on the card. Raises Skip where it has no kernel, TargetError where it fails."""
        launched = self._launched.get("forward")
        return super().target if launched is None else on_target(launched)

    @functools.cached_property
    def target_gradients(self) -> Gradients:
        """The gradients of the target's run. Raises as ``target`` does."""
        launched = self._launched.get("backward")
        return super().target_gradients if launched is None else on_target(launched)

    @contextlib.contextmanager
    def _beside(self, direction: Direction, launch: Callable[[], object]) -> Iterator[None]:
        """Launch a run of the target that is still to be made, and wait for it at the end of the block.

        What goes wrong on the card is raised for this call, and where the target is asked for. What interrupts a record
        waits for no card.
        """
        if direction in self._launched or direction in self._failed or _TARGETS[direction] in vars(self):
            yield
            return
        launched = _attempted(launch)

        def waited() -> object:
            result = launched()
            self._card.synchronize()
            return result

        try:
            yield
        except Exception:
            self._launched[direction] = _attempted(waited)
            raise
        self._launched[direction] = _attempted(waited)


def _attempted(run: Callable[[], _Result]) -> Callable[[], _Result]:
    """Make a run, and return what gives its result or raises its error."""
    try:
        result = run()
    except Exception as error:
        failure = error

        def fail() -> _Result:
            raise failure

        return fail
    return lambda: result
