"""The hook with which plugins and ``conftest.py`` files add transformations of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.extensions.transformations.transformations import TransformRegistry


def pytest_msprobe_transform(registry: TransformRegistry) -> None:
    """Add transformations of a comparison with ``registry.add("Module.*.output.0", "golden", function)``.

    Called in every process of a comparison, before dumps are opened. The function takes the recorded tensor and returns
    the one that is compared in its place.

    Args:
        registry: The registry of transformations.
    """
