"""A call run with its generators seeded, so that it draws the same numbers each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from msprobe_hooks.torch.generators import Generators
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.trials.trial import Trial


@contextmanager
def runs_in_a_row(trial: Trial) -> Iterator[Iterator[Run]]:
    """Yield an endless iterator of runs of the target that follow each other, with nothing seeded between them.

    The first one is the trial's own, seeded, unless that has been made. The CPU's generator is put back in the end.
    """
    state = torch.get_rng_state()

    def runs() -> Iterator[Run]:
        if "target" not in vars(trial):
            torch.manual_seed(trial.subject.seed)
            yield trial.target
        while True:
            yield trial.run_target_again()

    try:
        yield runs()
    finally:
        torch.set_rng_state(state)


def run_seeded(trial: Trial) -> Run:
    """Return the target's run, with the generators seeded for it where it has not run, and the CPU's put back."""
    if "target" in vars(trial):
        # To seed would also seed cards, whose generators no one puts back.
        return trial.target
    state = torch.get_rng_state()
    torch.manual_seed(trial.subject.seed)
    try:
        return trial.target
    finally:
        torch.set_rng_state(state)


def draws_undeclared_randomness(trial: Trial) -> bool:
    """Make the target's run, seeded as `drawn` does, and return whether it drew numbers though no trait says so.

    The judged run of such a call had no seed. Raises Skip and TargetError as the run does.
    """
    state = torch.get_rng_state()
    torch.manual_seed(trial.subject.seed)
    try:
        generators = Generators([trial.device.location()])
        _ = trial.target
        return trial.randomness is None and generators.have_moved()
    finally:
        torch.set_rng_state(state)
