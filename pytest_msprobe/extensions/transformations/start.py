"""The hook for transformations of users, declared at every start of pytest. PYTEST_DONT_REWRITE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_msprobe.extensions.transformations.transformations import TransformRegistry


class _Hooks:
    """Hooks that plugins and ``conftest.py`` files implement."""

    def pytest_msprobe_transform(self, registry: TransformRegistry) -> None:
        """Add transformations of a comparison with ``registry.add("Module.*.output.0", "golden", function)``.

        Called in every process of a comparison, before dumps are opened. The function takes the recorded tensor and
        returns the one that is compared in its place.

        Args:
            registry: The registry of transformations.
        """


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hook."""
    pluginmanager.add_hookspecs(_Hooks)
