"""Options that name the parallel layouts of both runs, and what merges ranks by them when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.registry import Layout, Runs

_SIDES = ("target", "golden")


def add_options(group: Any) -> None:
    """Add the options."""
    for side in _SIDES:
        group.addoption(
            f"--msprobe-{side}-layout",
            metavar="LAYOUT",
            help=f"parallel layout of the {side} run, whose ranks are merged into one model: "
            "tp=2,pp=2[,vpp=2][,order=...] or a YAML file",
        )


def passed(config: pytest.Config) -> list[str]:
    """Return the names of the options that were passed."""
    return [f"{side}_layout" for side in _SIDES if config.getoption(f"msprobe_{side}_layout")]


def read_layouts(config: pytest.Config) -> tuple[Layout | None, Layout | None]:
    """Return the layouts of target and golden run, None for ranks that are compared each. Raises OptionError."""
    folder = config.invocation_params.dir
    texts = [config.getoption(f"msprobe_{side}_layout") for side in _SIDES]
    target, golden = (
        parse_layout(f"--msprobe-{side}-layout", text, folder) if text else None
        for side, text in zip(_SIDES, texts, strict=True)
    )
    return target, golden


def parse_layout(flag: str, text: str, folder: Path) -> Layout:
    """Read a layout as a user gives it to an option. Raises OptionError."""
    from pytest_msprobe.extensions.merged_ranks import layouts

    return layouts.parse_layout(flag, text, folder)


def whole_runs(target: Dump, golden: Dump, layouts: Sequence[Layout | None]) -> Runs:
    """Return two runs with whole tensors in both. Raises RecordError where a record is malformed."""
    from pytest_msprobe.extensions.merged_ranks.layouts import whole_runs

    return whole_runs(target, golden, layouts)
