"""The option that perturbs inputs."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe_hooks.instruments.free_benchmark.config import PERTURBATIONS
from pytest_msprobe.errors import OptionError


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    group.addoption(
        "--msprobe-perturb",
        metavar="NAME",
        help="run each call once more with perturbed inputs, and warn where its result changes by more than msprobe's "
        f"free benchmark allows: {', '.join(PERTURBATIONS)} (default: not at all)",
    )


def read_perturb(config: pytest.Config) -> str | None:
    """Return the perturbation's name, None where nothing is perturbed. Raises OptionError."""
    name: Any = config.getoption("msprobe_perturb")
    if name is not None and name not in PERTURBATIONS:
        raise OptionError(f"--msprobe-perturb {name!r}: allowed are {', '.join(PERTURBATIONS)}")
    return None if name is None else str(name)
