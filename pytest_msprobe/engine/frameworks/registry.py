"""The frameworks by the name that dumps give them; nothing of a framework is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.engine.framework_names import KERNELS, MINDSPORE, MINDTORCH, PYTORCH, missing_piece
from pytest_msprobe.errors import DeviceError

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.framework import Framework


def _open_torch() -> Framework:
    from pytest_msprobe.engine.frameworks.torch import TorchFramework

    return TorchFramework()


def _open_mindspore() -> Framework:
    from pytest_msprobe.extensions.mindspore.runtime import start

    start()
    from pytest_msprobe.extensions.mindspore.framework import MindSporeFramework

    return MindSporeFramework()


def _open_mindtorch() -> Framework:
    from pytest_msprobe.extensions.mindspore.mindtorch_discovery import put_pytorch_first
    from pytest_msprobe.extensions.mindspore.runtime import start

    put_pytorch_first()
    start()
    from pytest_msprobe.extensions.mindspore.mindtorch.framework import MindTorchFramework

    return MindTorchFramework()


def _open_kernels() -> Framework:
    from pytest_msprobe.extensions.mindspore.kernels.framework import RecordedKernels

    return RecordedKernels()


#: What imports and starts each framework, by the name that dumps give it; recorded kernels need none.
OPENERS: dict[str, Callable[[], Framework]] = {
    PYTORCH: _open_torch,
    MINDSPORE: _open_mindspore,
    MINDTORCH: _open_mindtorch,
    KERNELS: _open_kernels,
}


def framework_named(name: str) -> Framework:
    """Return the framework that dumps call ``name``; imports and starts it. Raises DeviceError where that fails."""
    missing = missing_piece(name)
    if missing is not None:
        raise DeviceError(missing)
    if name not in OPENERS:
        known = [each for each in OPENERS if each != KERNELS]
        raise DeviceError(f"unknown framework {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")
    return OPENERS[name]()
