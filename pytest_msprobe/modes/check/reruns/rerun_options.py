"""The options that run calls again: repeated, on parts of the batch, or perturbed; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_msprobe.run.option_fields import add_fields, number, one_of, option

#: As msprobe_hooks.extensions.free_benchmark has them.
PERTURBATIONS = ("improve_precision", "add_noise", "bit_noise", "change_value", "no_change", "to_cpu")


@dataclass(frozen=True, slots=True)
class RerunOptions:
    """How often a call runs, None for once; whether parts of its batch run; the perturbation of its inputs."""

    repeat: int | None = option(
        "--msprobe-repeat",
        "run each call N times on the device, 2 or more, and fail calls whose results differ (default: once)",
        metavar="N",
        read=number(int, "a number of runs, 2 or more", lambda times: times >= 2),
    )
    batch_invariant: bool = option(
        "--msprobe-batch-invariant",
        "run each call whose rows are independent on single rows and other parts of its batch too, and fail calls "
        "whose rows then have other bits (default: the whole batch only)",
    )
    perturb: str | None = option(
        "--msprobe-perturb",
        "run each call once more with perturbed inputs, and warn if its result changes by more than msprobe's free "
        f"benchmark allows: {', '.join(PERTURBATIONS)} (default: no perturbation)",
        metavar="NAME",
        read=one_of(*PERTURBATIONS),
    )


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group."""
    add_fields(group, RerunOptions)
