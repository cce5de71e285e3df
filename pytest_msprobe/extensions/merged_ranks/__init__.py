"""Runs whose ranks held one model together, compared as one run.

Options: ``--msprobe-target-layout`` and ``--msprobe-golden-layout`` of ``--msprobe-compare``, ``--layout`` and
``--golden-layout`` of ``pytest-msprobe graph``. It writes no file; how ranks are merged is in the hook library's
``extensions/merged_ranks``, which it is the face of. Without it, each rank is compared with one of its number.

It enters by ``pytest_msprobe_register_comparisons``. Take it out by deleting this folder, its counterpart in the hook
library and tests/extensions/merged_ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the layouts of both sides, and what merges ranks by them."""
    from pytest_msprobe.extensions.merged_ranks import layout_options

    registry.set_merged_runs(layout_options)
