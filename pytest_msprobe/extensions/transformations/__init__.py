"""Transformations of recorded tensors: rotated, permuted or dequantised before two runs are compared.

Option: ``--msprobe-transform FILE`` of ``--msprobe-compare``, a YAML file of entries or msprobe's own configuration of
matrices; the keyword ``transform`` of ``compare_dumps``. It declares the hook ``pytest_msprobe_transform``, with which
a plugin or ``conftest.py`` adds functions of its own. It writes no file; rows of reports say how a value was turned.

It enters by ``pytest_msprobe_register_comparisons``. Without it, the option is not offered and values are compared as
they were recorded. Take it out by deleting this folder and tests/extensions/transformations.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the option, and what reads transformations."""
    from pytest_msprobe.extensions.transformations import options

    registry.add_options(options.TransformOptions)
    registry.set_transformations(options.read)
