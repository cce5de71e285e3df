"""Comparison of runs of two frameworks, or of two recorders of one. Needs the extension mindspore.

Calls, modules and values of MindSpore find their partners in PyTorch by tables of names, and what two frameworks need
not share is left out; a static graph of MindSpore is read as calls. It reads the keys ``api``, ``cell`` and ``layer``
of the files of ``--msprobe-mapping``, and has no option of its own. With a layer mapping, it writes
``data_mapping_*.yaml`` next to the tables: what was paired with what.

It enters by ``pytest_msprobe_register_comparisons``. Without it, records are paired by the names that they have.
Take it out by deleting this folder and tests/extensions/across_frameworks.

Importing its modules loads msgspec, pytest and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry, SharedNames


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the mapping files, and the names that two frameworks share."""
    from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions

    registry.add_options(AcrossOptions)
    registry.set_names(_shared_names)


def _shared_names(compare: CompareOptions) -> SharedNames:
    from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
    from pytest_msprobe.extensions.across_frameworks.translation import FrameworkNames

    return FrameworkNames(compare.part(AcrossOptions))
