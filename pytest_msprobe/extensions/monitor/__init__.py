"""Monitored runs as test items: each series judged by rules, or compared with its golden twin.

``--msprobe-monitor RUN`` judges what ``msprobe_hooks.watch``, ``TrainerMon`` or a gradient probe wrote; with
``--msprobe-golden RUN`` each series is compared, and ``--msprobe-golden-rerun RUN`` says how far golden runs drift
apart. The setting ``msprobe_monitor_dtype`` names the dtype of the training. ``--msprobe-html`` writes a page of
curves, ``--msprobe-json`` msprobe's ``anomaly.json``.
Tests watch a training by the fixture ``msprobe_monitor``. Commands: ``pytest-msprobe msprobe series`` and
``anomaly-analyse``.

Take it out by deleting this folder, the hook library's extension of the same name, and tests/extensions/monitor.

Importing its modules loads msgspec, numpy, pytest and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.journal import Journal
    from pytest_msprobe.reports.check_page.rows import AboutRun
    from pytest_msprobe.run.mode import ModeRegistry

EXPORTS = {"TrainingMonitor": "monitor_fixture"}


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``anomaly-analyse`` and ``series``, and what ``report`` says of a monitored run."""
    from pytest_msprobe.commands.registry import Command

    registry.add_of_msprobe(
        "anomaly-analyse",
        Command(
            "list the earliest anomalies of a training over all ranks",
            "-d anomalies -k 5",
            "monitor.md",
            f"{__name__}.anomaly_analyse_command",
        ),
    )
    registry.add_of_msprobe(
        "series",
        Command(
            "write or read msprobe's .trend.db of statistics",
            "dump -o run.trend.db",
            "monitor.md",
            f"{__name__}.series_command",
        ),
    )
    registry.add_to_report(__name__)


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.monitor.options import MONITOR

    registry.add(MONITOR)


def about_run(journal: Journal) -> AboutRun | None:
    """Return what the head of a page says of the tests of a monitored run: how to get the page with its curves."""
    import os
    import shlex
    from pathlib import Path

    from pytest_msprobe.reports.check_page.rows import AboutRun

    if journal.header.settings.get("mode") != "monitor":
        return None
    folders = {str(Path(file).parent) for file in journal.header.dumps}
    if not folders:
        return AboutRun([])
    command = shlex.join(["pytest", f"--msprobe-monitor={os.path.commonpath(folders)}", "--msprobe-html=curves.html"])
    return AboutRun([f"These are the tests of a monitored run. The page with its curves: {command}"])
