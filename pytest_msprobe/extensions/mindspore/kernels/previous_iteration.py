"""Former values of inputs that a kernel overwrites, found by digests in the previous iteration.

That is so of the steps of optimizers, which move parameters in place. MindSpore writes all parameters once more at the
end of an iteration: whichever holds the very values that a step left is the one that it moved, and at the end of the
iteration before it held what the step was given.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from numpy import load

from msprobe_hooks.dump.json_records import Kernel
from msprobe_hooks.dump.paths.static_graph import net_folder
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump, read_iteration
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
        views = (candidate for candidate in dump.kernels.values() if candidate.type.endswith("View"))
        elements = (element for view in views for element in view.outputs.values())
        _of_views[dump.path] = frozenset((element.shape, digest(dump.tensor_folder, element)) for element in elements)
    viewed = _of_views[dump.path]
    shapes = {shape for shape, _ in viewed}
    return any(
        (element.shape, digest(dump.tensor_folder, element)) in viewed
        for element in kernel.inputs.values()
        if element.shape in shapes
    )


def element_before(dump: GraphDump, element: TensorElement) -> TensorElement | None:
    """Return a parameter as an iteration began, by what a kernel left in it; None where that is not known.

    It is not where the iteration before was not dumped or its file is not whole, or where several parameters hold such
    values that differed.
    """
    former = _former(dump.path)
    names = _held_by(dump).get(digest(dump.tensor_folder, element), []) if former is not None else []
    if former is None or not names or any(name not in former.kernels for name in names):
        return None
    elements = [former.kernels[name].outputs[0] for name in names]
    digests = {digest(former.tensor_folder, candidate) for candidate in elements}
    return elements[0] if len(digests) == 1 and digests != {DAMAGED} else None


# What is asked of an iteration is asked by many kernels in a row; a dump itself has no hash.
_last_held: dict[Path, dict[bytes, list[str]]] = {}


def _held_by(dump: GraphDump) -> dict[bytes, list[str]]:
    if dump.path not in _last_held:
        _last_held.clear()
        names = _last_held[dump.path] = {}
        for name, kernel in dump.kernels.items():
            if kernel.is_parameter and 0 in kernel.outputs:
                names.setdefault(digest(dump.tensor_folder, kernel.outputs[0]), []).append(name)
    return _last_held[dump.path]


@lru_cache(maxsize=2)
def _former(path: Path) -> GraphDump | None:
    """Return the iteration before that of a file; None where it is not there."""
    iteration = int(path.parent.name)
    folders = [net_folder(path) / path.parents[1].name / str(iteration - 1)] if iteration else []
    file = next((file for folder in folders for file in sorted(folder.glob("*.npy"))), None)
    try:
        return None if file is None else read_iteration(file)
    except DumpError:
        # What is wrong with another iteration is reported where that one is checked.
        return None
