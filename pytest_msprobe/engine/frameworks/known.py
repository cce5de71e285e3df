"""The frameworks that dumps name, and whether their calls can be run here; nothing of them is imported."""

from __future__ import annotations

from importlib.util import find_spec

PYTORCH = "pytorch"
MINDSPORE = "mindspore"


def missing_piece(framework: str) -> str | None:
    """Return what keeps this installation from running a framework's calls and what to do; None for nothing."""
    if framework == MINDSPORE and find_spec("mindspore") is None:
        return "MindSpore is not installed; pip install 'pytest-msprobe[mindspore]'"
    if framework == "mindtorch":
        installed = find_spec("mindtorch") is not None
        return "this version does not run MindTorch's calls" if installed else "the package mindtorch is not installed"
    return None
