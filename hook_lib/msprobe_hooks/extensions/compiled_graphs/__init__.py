"""Level ``compiled``: the kernels of graphs that ``torch.compile`` made, recorded with what each computes.

The compiler's generated code is read, and each of its kernels recorded as a call with its inputs and outputs, next to
the calls between graphs.
Level of a recording: ``compiled``, with PyTorch. It adds no command and no file besides those of every recording.
Without it this level is refused.
Take it out by deleting this folder, that of the same name of the plugin, and tests/extensions/compiled_graphs.

Importing its modules loads isal, msgspec and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.config import Settings
    from msprobe_hooks.recording.session import Model, Session


def open_session(settings: Settings, model: Model | None, framework: Framework) -> Session | None:
    """Return a recording of the kernels of compiled graphs, or of their operators at level aten; None for others."""
    is_of_operators = settings.level == "aten" and settings.golden_path is not None
    if framework != "pytorch" or not (is_of_operators or settings.level == "compiled"):
        return None
    from msprobe_hooks.extensions.compiled_graphs.graph_hook import CompiledSession

    return CompiledSession(settings, model)
