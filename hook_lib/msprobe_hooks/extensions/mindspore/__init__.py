"""MindSpore and MindTorch: recordings of their calls, cells and static graphs.

With framework ``mindspore`` the recordings of the core see MindSpore's functions, primitives and cells, MindTorch's
where the program has imported it, and have MindSpore dump the kernels of static graphs, which are read as a dump.
Public names, of `msprobe_hooks.mindspore`: ``PrecisionDebugger``, ``MsprobeStep``, ``seed_all``.
Files: those of any recording; MindSpore's own for a static graph. It adds no key to ``config.json``.
Command: ``code-mapping`` of `pytest_msprobe` names the lines of a static graph's kernels.
Without it framework ``mindspore`` is refused, also by the extensions that need this one, and so are static graphs.
Take it out by deleting this folder, pytest_msprobe/extensions/mindspore, tests/extensions/mindspore and
tests/mindspore, and the extensions that need it or the parts of them that do.

Importing its modules loads mindspore and msgspec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.config import Settings
    from msprobe_hooks.recording.session import Model, Session

FRAMEWORKS = ("mindspore",)
MINDSPORE_EXPORTS = {"MsprobeStep": "debugger", "PrecisionDebugger": "debugger", "seed_all": "debugger"}


def open_session(settings: Settings, model: Model | None, framework: Framework) -> Session | None:
    """Return a recording of MindSpore, or of MindTorch where the program has imported it, of a task of the core."""
    from msprobe_hooks.recording.config import OVERFLOW_TASKS

    if framework != "mindspore" or settings.task in OVERFLOW_TASKS:
        return None
    from msprobe_hooks.extensions.mindspore.session import MindSporeSession, MindTorchSession, mindtorch

    torch = mindtorch()
    return MindSporeSession(settings, model) if torch is None else MindTorchSession(settings, torch, model)


def open_dump(path: Path) -> Dump | None:
    """Return what MindSpore dumped of an iteration of a static graph."""
    from msprobe_hooks.dump.recording_paths import is_iteration_file

    if not is_iteration_file(path):
        return None
    from msprobe_hooks.extensions.mindspore.static_graph.reader import read_iteration

    return read_iteration(path)
