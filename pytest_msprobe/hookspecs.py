"""Hooks with which plugins and ``conftest.py`` extend the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from msprobe_standards.registry import StandardRegistry
    from pytest_msprobe.devices.registry import DeviceRegistry
    from pytest_msprobe.engine.replay.references import ReferenceRegistry
    from pytest_msprobe.modes.compare.measure.own_metrics import CompareMetricRegistry
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry
    from pytest_msprobe.run.mode import ModeRegistry


@pytest.hookspec(historic=True)
def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add kinds of run with ``registry.add(mode)``.

    Called in every process as soon as the plugin is known, before options are parsed: a mode adds options of its own.

    Args:
        registry: The registry of modes.
    """


def pytest_msprobe_register_devices(registry: DeviceRegistry) -> None:
    """Add devices with ``registry.add(device)``.

    Called in every process, the xdist controller included, before options are checked. A device is known by its
    ``name``, which ``--msprobe-device`` then accepts; its methods are first called where items run.

    Args:
        registry: The registry of devices.
    """


def pytest_msprobe_register_standards(registry: StandardRegistry) -> None:
    """Add standards with ``registry.add(name, factory)``.

    Called where items run, once, before the first verdict. Markers and policy files then accept the name.

    Args:
        registry: The registry of standards.
    """


def pytest_msprobe_register_references(registry: ReferenceRegistry) -> None:
    """Add golden definitions, for APIs that the CPU lacks, with ``registry.add("NPU.my_op", function)``.

    Called where items run, once. A reference takes the API's own arguments, in raised precision on the CPU, and is
    differentiated by autograd.

    Args:
        registry: The registry of golden definitions.
    """


def pytest_msprobe_register_compare_metrics(registry: CompareMetricRegistry) -> None:
    """Add metrics of comparisons with ``registry.add("my_metric", function)``.

    Called in every process of a comparison, before dumps are opened. The function takes the target's and the golden
    tensor and returns a number, which is a column of every report; a policy may require ``my_metric <= 0.1``.

    Args:
        registry: The registry of metrics.
    """


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add parts of comparisons: kinds, names that two runs share, transformations, merged runs, graphs.

    Called in every process of a comparison, before dumps are opened, and wherever two runs are compared. Options of the
    parts of this package's extensions are added with those of the comparison; another plugin adds its own in
    ``pytest_addoption``, and has ``registry.add_options`` read them.

    Args:
        registry: The registry of parts.
    """
