from __future__ import annotations

from msprobe_hooks.extensions.free_benchmark import config
from pytest_msprobe.extensions.free_benchmark import options


def test_the_option_names_the_perturbations_of_the_hook_library() -> None:
    assert options.PERTURBATIONS == config.PERTURBATIONS
