"""Tasks ``overflow_check`` and ``nan_check``: the call that inf or nan arises in. Needs the extension mindspore.

A recording that looks for it measures each result and writes that call alone, with its tensors.
Tasks of a recording: ``overflow_check``, which ends after ``overflow_nums`` of them, and ``nan_check``.
Files: those of any recording with tensors.
Options and commands: those of `pytest_msprobe.extensions.overflow`, which finds the origin over all ranks of a dump.
Without it both tasks are refused.
Take it out by deleting this folder, pytest_msprobe/extensions/overflow and tests/extensions/overflow.

Importing its modules loads isal, mindspore, msgspec and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.config import Settings
    from msprobe_hooks.recording.session import Model, Session


def open_session(settings: Settings, model: Model | None, framework: Framework) -> Session | None:
    """Return a recording of the two tasks."""
    from msprobe_hooks.recording.config import OVERFLOW_TASKS

    if settings.task not in OVERFLOW_TASKS:
        return None
    if framework == "mindspore":
        from msprobe_hooks.extensions.mindspore.session import MindSporeSession
        from msprobe_hooks.extensions.overflow.mindspore_recorder import MindSporeOverflowRecorder

        return MindSporeSession(settings, model, MindSporeOverflowRecorder(settings))
    from msprobe_hooks.extensions.overflow.torch_recorder import TorchOverflowRecorder
    from msprobe_hooks.torch.session import TorchSession

    return TorchSession(settings, model, TorchOverflowRecorder(settings))
