"""Communication between ranks, judged over the dumps of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.communication.options import COMMUNICATION

    registry.add(COMMUNICATION)
