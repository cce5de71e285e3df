"""Declaration of the comparison, which runs of other modes load in place of the mode."""

from __future__ import annotations

from collections.abc import Collection

from pytest_msprobe.modes.compare.options import CompareOptions, PartOptions
from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.shared_options import GOLDEN, HTML, JSON, MAPPING, MODEL_CONFIG, XLSX


def _parts() -> Collection[type[PartOptions]]:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry

    return ComparisonRegistry().options


COMPARE = DeclaredMode(
    name="compare",
    flag="--msprobe-compare",
    flag_help="compare this run with --msprobe-golden: a dump.json, or a folder of steps and ranks",
    home="pytest_msprobe.modes.compare.mode:CompareMode",
    shared_options=(GOLDEN, XLSX, HTML, JSON, MAPPING, MODEL_CONFIG),
    options=(CompareOptions,),
    parts=_parts,
)
