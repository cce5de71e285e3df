"""Two checkpoints compared: each parameter is an item."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.checkpoint.options import CHECKPOINT

    registry.add(CHECKPOINT)
