"""Runs whose ranks held one model together, compared as one run.

Options: ``--msprobe-target-layout`` and ``--msprobe-golden-layout`` of ``--msprobe-compare``, ``--layout`` and
``--golden-layout`` of ``pytest-msprobe graph``. It writes no file; how ranks are merged is in the hook library's
``extensions/merged_ranks``, which it is the face of. Without it, each rank is compared with one of its number.

It enters by ``pytest_msprobe_register_comparisons``. Take it out by deleting this folder, its counterpart in the hook
library and tests/extensions/merged_ranks.

Importing its modules loads msgspec, pytest and yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry
    from pytest_msprobe.modes.compare.runs import Layout, Runs


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the layouts of both sides, and what merges ranks by them."""
    from pytest_msprobe.extensions.merged_ranks.options import LayoutOptions

    registry.add_options(LayoutOptions)
    registry.set_merged_runs(_Merged())


class _Merged:
    """Module that merges ranks, loaded when it is needed."""

    def parse_layout(self, flag: str, text: str, folder: Path) -> Layout:
        """Read a layout as a user gives it to an option. Raises OptionError."""
        from pytest_msprobe.extensions.merged_ranks.layouts import parse_layout

        return parse_layout(flag, text, folder)

    def whole_runs(self, target: Dump, golden: Dump, layouts: Sequence[Layout | None]) -> Runs:
        """Return two runs with whole tensors in both. Raises RecordError where a record is malformed."""
        from pytest_msprobe.extensions.merged_ranks.layouts import whole_runs

        return whole_runs(target, golden, layouts)
