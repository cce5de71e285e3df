"""Declaration of the comparison, which a start of pytest loads in place of the mode."""

from __future__ import annotations

import pytest

from pytest_msprobe.modes.compare import options
from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.shared_options import GOLDEN, HTML, JSON, MAPPING, MODEL_CONFIG, XLSX


def _add_options(group: pytest.OptionGroup) -> None:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry

    options.add_options(group, ComparisonRegistry(at_start=True).options)


def _refuse(config: pytest.Config) -> None:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry

    options.refuse_without_target(config, ComparisonRegistry(at_start=True).options)


COMPARE = DeclaredMode(
    name="compare",
    flag="--msprobe-compare",
    flag_help="compare this run with --msprobe-golden: a dump.json, or a folder of steps and ranks",
    home="pytest_msprobe.modes.compare.mode:CompareMode",
    shared_options=(GOLDEN, XLSX, HTML, JSON, MAPPING, MODEL_CONFIG),
    add_options=_add_options,
    refuse=_refuse,
)
