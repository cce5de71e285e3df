"""Telling tensors of a dump by what they hold: MindSpore names those of kernels, and not where they come from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from numpy import load

from msprobe_hooks.dump.kernel_dump import Kernel
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
from msprobe_hooks.regular_files import open_regular

DAMAGED: Final = b""

# The last dump's alone: what is asked of an iteration is asked by many kernels in a row, and a dump has no hash.
_of_views: dict[Path, frozenset[tuple[tuple[int, ...], bytes]]] = {}


def digest(folder: Path, element: TensorElement) -> bytes:
    """Return what tensors of equal elements share, whatever their shape; DAMAGED for a file that is not whole."""
    try:
        with open_regular(folder / (element.data_name or "")) as file:
            array = load(file, allow_pickle=False)
    except Exception:
        # Bytes that are no array make numpy raise almost anything.
        return DAMAGED
    return hashlib.blake2b(array.tobytes() + str(array.dtype).encode(), digest_size=16).digest()


def takes_a_view(dump: GraphDump, kernel: Kernel) -> bool:
    """Return whether a kernel was given what a view made, of which MindSpore writes the memory and not the elements."""
    if dump.path not in _of_views:
        _of_views.clear()
        views = (each for each in dump.kernels.values() if each.type.endswith("View"))
        elements = (element for view in views for element in view.outputs.values())
        _of_views[dump.path] = frozenset((element.shape, digest(dump.tensor_folder, element)) for element in elements)
    known = _of_views[dump.path]
    shapes = {shape for shape, _ in known}
    return any(
        (element.shape, digest(dump.tensor_folder, element)) in known
        for element in kernel.inputs.values()
        if element.shape in shapes
    )
