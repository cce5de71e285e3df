"""Hooks with which plugins and ``conftest.py`` extend the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe_hooks.recording.session import Session
    from msprobe_standards.registry import StandardRegistry
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.devices.registry import DeviceRegistry
    from pytest_msprobe.engine.frameworks import FrameworkRegistry
    from pytest_msprobe.engine.replay.function_check import CheckedFunction, Given
    from pytest_msprobe.engine.replay.references import ReferenceRegistry
    from pytest_msprobe.engine.replay.strategies import StrategyRegistry
    from pytest_msprobe.modes.check.dump_checks import DumpCheckRegistry
    from pytest_msprobe.modes.check.features import CheckFeatures
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


def pytest_msprobe_session(config: pytest.Config) -> None:
    """Register what watches the items of a session, once in each process of a run that has something of this plugin.

    Called when the options are read and the dumps are open, before pytest collects.

    Args:
        config: The configuration, with the options of the run.
    """


def pytest_msprobe_register_devices(registry: DeviceRegistry) -> None:
    """Add devices with ``registry.add(device)``.

    Called in every process, the xdist controller included, before options are checked. A device is known by its
    ``name``, which ``--msprobe-device`` then accepts; its methods are first called where items run.

    Args:
        registry: The registry of devices.
    """


def pytest_msprobe_register_frameworks(registry: FrameworkRegistry) -> None:
    """Add frameworks with ``registry.add(name, FrameworkEntry(open))``.

    Called in every process of a check before its dumps are. ``name`` is the one that dumps give; ``open`` imports
    the framework and returns it when a record is about to run.

    Args:
        registry: The registry of frameworks.
    """


def pytest_msprobe_register_dump_checks(registry: DumpCheckRegistry) -> None:
    """Add checks of dumps whose records are no calls of a program with ``registry.add(kind, check)``.

    Called in every process of a check before its dumps are. ``kind`` is that of the opened dump.

    Args:
        registry: The registry of checks.
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


def pytest_msprobe_register_strategies(registry: StrategyRegistry) -> None:
    """Add ways to a verdict with ``registry.add(strategy)``, tried before golden is computed.

    Called where items run, once. A strategy returns the verdicts on one direction of a call, or None to leave it to
    the next.

    Args:
        registry: The registry of strategies.
    """


@pytest.hookspec(historic=True)
def pytest_msprobe_register_check_features(registry: CheckFeatures) -> None:
    """Add what a check does besides its verdicts with ``registry.add(feature)``.

    Called in every process as soon as the plugin is known, before options are parsed: a feature adds options of its
    own, steps after each verdict, reporters and counts in the summary.

    Args:
        registry: The registry of features.
    """


@pytest.hookspec(firstresult=True)
def pytest_msprobe_judge_function(
    config: pytest.Config, name: str, judge: Callable[[Given], CheckedFunction], given: Given
) -> CheckedFunction | None:
    """Judge a function of ``precision.check`` on what its arguments stand for, such as values that are to be drawn.

    The first implementation that does not return None decides; with none, the arguments are judged as they are.

    Args:
        config: The configuration of the run.
        name: The name of the check.
        judge: Judges the function on arguments and keyword arguments.
        given: The arguments and keyword arguments that the test gave.
    """


def pytest_msprobe_recording_started(session: Session) -> None:
    """Look at the recording of a test before its first call, such as to watch for what it records.

    Args:
        session: The session of the hook library that records.
    """


def pytest_msprobe_recording_ended(session: Session) -> None:
    """Look at the recording of a test after its last call; ``pytest.fail`` fails the test.

    Args:
        session: The session of the hook library that has recorded.
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


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add commands of ``pytest-msprobe`` with ``registry.add("trainings", "my-command", Command(...))``.

    Called by the program ``pytest-msprobe`` alone, outside of any session of pytest, on the extensions of this package.

    Args:
        registry: The registry of commands.
    """
