"""The session of MindTorch: MindSpore's, with the functions and modules of torch in place of its own."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from msprobe_hooks.extensions.mindspore.mindtorch.apis import functions
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.extensions.mindspore.session import MindSporeSession
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.session import Model


class MindTorchRecorder(MindSporeRecorder):
    """Records what runs under MindTorch."""

    framework = "mindtorch"


class MindTorchSession(MindSporeSession):
    """A recording of what a program calls of MindTorch; modules are recorded where they are MindSpore's cells."""

    module_type = "Module"

    def __init__(self, settings: Settings, torch: ModuleType, model: Model | None = None) -> None:
        self._torch = torch
        super().__init__(settings, model, MindTorchRecorder(settings))

    def functions(self) -> Iterator[tuple[Any, str, str]]:
        """Yield the functions whose calls are recorded."""
        return functions(self._torch)

    def layers(self) -> Iterator[tuple[Any, str, str]]:
        """Yield nothing: what MindSpore calls a primitive has no name in torch."""
        return iter(())
