"""The frameworks that dumps name; nothing of them is imported."""

from __future__ import annotations

from msprobe_hooks.dump.reader import Dump

PYTORCH = "pytorch"
MINDSPORE = "mindspore"
MINDTORCH = "mindtorch"
#: What a dump of a static graph is checked as: its kernels are not run, so that MindSpore need not be there.
KERNELS = "recorded kernels"


def checked_as(dump: Dump) -> str:
    """Return the framework by which the records of a dump are checked."""
    return KERNELS if dump.kind == "static graph" else dump.framework
