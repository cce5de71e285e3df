"""The frameworks by the name that dumps give them; nothing of a framework is imported before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.engine.frameworks.known import MINDSPORE, PYTORCH, missing_piece
from pytest_msprobe.errors import DeviceError

if TYPE_CHECKING:
    from pytest_msprobe.engine.frameworks.framework import Framework


def framework_named(name: str) -> Framework:
    """Return the framework that dumps call ``name``; imports and starts it. Raises DeviceError where that fails."""
    if name == PYTORCH:
        from pytest_msprobe.engine.frameworks.torch import TorchFramework

        return TorchFramework()
    missing = missing_piece(name)
    if missing is not None:
        raise DeviceError(missing)
    if name != MINDSPORE:
        raise DeviceError(f"unknown framework {name!r}; known are {PYTORCH}, {MINDSPORE}")
    from pytest_msprobe.engine.frameworks.mindspore.runtime import start

    start()
    from pytest_msprobe.engine.frameworks.mindspore.framework import MindSporeFramework

    return MindSporeFramework()
