"""The environments of two trainings compared: each fact is an item.

``--msprobe-environment A --msprobe-golden B`` compares launch configurations: files that the hook library's extension
of the same name wrote, msprobe's packs, or launch scripts. ``pytest-msprobe environment`` writes one of a script
without running it.
The page is that of ``--msprobe-html``, a workbook that of ``--msprobe-xlsx``.

Take it out by deleting this folder, the hook library's extension of the same name, and tests/extensions/environment.

Importing its modules loads msgspec, pytest and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``environment``."""
    from pytest_msprobe.commands.registry import TRAININGS, Command

    registry.add(
        TRAININGS,
        "environment",
        Command(
            "write a training's launch configuration without running it",
            "-o start train.sh config.yaml",
            "environment.md",
            f"{__name__}.environment_command",
        ),
    )


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.environment.mode import ENVIRONMENT

    registry.add(ENVIRONMENT)
