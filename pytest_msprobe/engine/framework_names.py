"""The frameworks that dumps name, and whether their calls can be run here; nothing of them is imported."""

from __future__ import annotations

from importlib.util import find_spec

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
from pytest_msprobe.extensions.mindspore.mindtorch_discovery import find_mindtorch

PYTORCH = "pytorch"
MINDSPORE = "mindspore"
MINDTORCH = "mindtorch"
#: What a dump of a static graph is checked as: its kernels are not run, so that MindSpore need not be there.
KERNELS = "recorded kernels"


def checked_as(dump: Dump) -> str:
    """Return the framework by which the records of a dump are checked."""
    return KERNELS if isinstance(dump, GraphDump) else dump.framework


def missing_piece(framework: str) -> str | None:
    """Return what keeps this installation from running a framework's calls and what to do; None for nothing."""
    if framework == MINDTORCH and find_mindtorch() is None:
        return "MindTorch is not installed: neither a package mindtorch nor a torch of MindSpore's is on the path"
    if framework in (MINDSPORE, MINDTORCH) and find_spec("mindspore") is None:
        return "MindSpore is not installed; pip install 'pytest-msprobe[mindspore]'"
    return None
