"""Level L2: kernels of one call, dumped by the card's library. Needs the extension free_benchmark.

The call that ``list`` names is recorded while CANN's library dumps the kernels of its forward or backward direction.
Converted files of kernels are read as a dump, which can be compared with that of another run.
Level of a recording: ``L2`` with PyTorch on a card. It adds no command.
Files: ``kernel_config.json`` in the step's folder, or ``kernel_config_<rank>.json``, and what the library writes.
Without it level L2 is refused with PyTorch, and so are converted files.
Take it out by deleting this folder and tests/extensions/kernel_dump.

Importing its modules loads isal, msgspec and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.config import Settings
    from msprobe_hooks.recording.session import Model, Session


def open_session(settings: Settings, model: Model | None, framework: Framework) -> Session | None:
    """Return a recording of one call's kernels at level L2 of PyTorch."""
    from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL

    if framework != "pytorch" or settings.level != KERNEL_LEVEL:
        return None
    from msprobe_hooks.extensions.kernel_dump.torch_recorder import KernelRecorder
    from msprobe_hooks.torch.session import TorchSession

    recorder = KernelRecorder(settings)
    return TorchSession(recorder.settings, model, recorder)


def open_dump(path: Path) -> Dump | None:
    """Return the dump of a folder of converted kernel files."""
    from msprobe_hooks.dump.recording_paths import is_converted_file

    if not is_converted_file(path):
        return None
    from msprobe_hooks.extensions.kernel_dump.converted import read_tree

    return read_tree(path)
