"""Perturbed inputs: each call runs once more on inputs that msprobe's free benchmark has changed a little.

The option ``--msprobe-perturb NAME`` asks for it; a result that changes too much is a warning. With ``--msprobe-csv``
it writes ``free_benchmark.csv``, in msprobe's columns. The perturbations are those of the hook library's extension of
the same name, which perturbs calls while a program runs.

Take it out by deleting this folder, that extension, and tests/extensions/free_benchmark.

Importing its modules loads msgspec, pytest and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.modes.check.features import CheckFeatures


def pytest_msprobe_register_check_features(registry: CheckFeatures) -> None:
    """Add perturbed inputs to a check."""
    from pytest_msprobe.extensions.free_benchmark.options import PerturbFeature

    registry.add(PerturbFeature())


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add free_benchmark.csv to the tables of ``report --csv``."""
    registry.add_to_report(f"{__name__}.perturb_table")
