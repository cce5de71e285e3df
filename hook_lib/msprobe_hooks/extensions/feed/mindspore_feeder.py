"""Feeder of the cells of a program of MindSpore, in PyNative mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.common._grad_function import _Function

from msprobe_hooks.dump.npy import find_file, read_array
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.feed.feeder import Checkpoint, Feeder
from msprobe_hooks.extensions.mindspore.context import is_pynative, process_rank, require_pynative
from msprobe_hooks.extensions.mindspore.gradients import takes_gradient
from msprobe_hooks.extensions.mindspore.recorder import (
    MindSporeRecorder,
    is_recomputation_of,
    is_recomputed,
    running_recomputation,
)
from msprobe_hooks.recording.interposition import uncopied
from msprobe_hooks.recording.session import running_session


class MindSporeFeeder(Feeder):
    """Gives each named ``mindspore.nn.Cell`` its recorded inputs."""

    frameworks = ("mindspore",)
    tensor_class = Tensor
    module_class = nn.Cell
    module_name = "mindspore.nn.Cell"
    call_method = "construct"

    rank = staticmethod(process_rank)

    def begin(self) -> None:
        """Register hooks on the cells of the model. Raises ConfigError where it is none, or a graph would run."""
        require_pynative()
        super().begin()

    def named_modules(self, model: nn.Cell) -> Iterable[tuple[str, nn.Cell]]:
        """Yield the path and the cell of everything inside a model."""
        cells: Iterable[tuple[str, nn.Cell]] = model.cells_and_names()
        return ((name, cell) for name, cell in cells if not is_recomputation_of(cell))

    def hook(self, module: nn.Cell, give: Callable[[Any, Any, Any], Any]) -> Any:
        """Call ``give`` before the hooks of the program and of a recording."""
        return module.register_forward_pre_hook(uncopied(give), prepend=True, with_kwargs=True)

    def is_hidden(self) -> bool:
        """Return whether a graph is made."""
        return not is_pynative()

    def quiet(self) -> AbstractContextManager[object]:
        """Return a context in which a recording that runs records no call."""
        session = running_session()
        recorder = None if session is None else session.recorder
        return recorder.suspended() if isinstance(recorder, MindSporeRecorder) else nullcontext()

    def checkpoint(self) -> tuple[Checkpoint | None, bool]:
        """Return the recomputation around this call, and whether it makes the call again."""
        frame = sys._getframe(1)
        found = running_recomputation(frame)
        if found is None:
            return None, is_recomputed(frame)
        return Checkpoint(found.owner, found.depth, found.backward_pass), found.is_again

    def recorded(self, tensor: Tensor, element: TensorElement, folder: Path) -> Tensor:
        """Return the recorded tensor with the program's dtype and gradient."""
        name = element.data_name or ""
        path = find_file(folder, name)
        if path is None or path.suffix != ".npy":
            raise DumpError(f"{folder / name}: no .npy file of this name; copy it, or record the step again")
        try:
            array = np.array(read_array(path))
        except (OSError, ValueError) as error:
            raise DumpError(f"{path}: not a readable tensor file, copy or record it again: {error}") from None
        if array.shape != tuple(tensor.shape):
            raise DumpError(f"{path}: holds the shape {array.shape}, not {tuple(tensor.shape)}; record the step again")
        with mindspore._no_grad():
            fed = Tensor(array).astype(tensor.dtype)
        return _PassedThrough.apply(tensor, [fed]) if takes_gradient(tensor) else fed

    def difference(self, tensor: Tensor, fed: Tensor) -> float:
        """Return the greatest difference of the program's tensor from what replaces it, by its greatest value."""
        mine, theirs = (_measurable(one) for one in (tensor, fed))
        with np.errstate(all="ignore"):
            are_equal = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
            distance = np.where(are_equal, 0, np.abs(mine - theirs))
        greatest = float(np.nan_to_num(distance, nan=np.inf, posinf=np.inf).max(initial=0.0))
        scale = np.abs(theirs)
        return greatest / (float(scale.max(where=np.isfinite(scale), initial=0.0)) or 1.0) if greatest else 0.0


def _measurable(tensor: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the values in a dtype that numpy subtracts in."""
    with mindspore._no_grad():
        array: np.ndarray[Any, np.dtype[Any]] = (
            tensor.asnumpy() if "Complex" in str(tensor.dtype) else tensor.astype(mindspore.float64).asnumpy()
        )
    return array


class _PassedThrough(_Function):  # type: ignore[misc]
    """A value in the place of another, whose gradient goes to that one unchanged."""

    @staticmethod
    def forward(_: Any, original: Tensor, fed: list[Tensor]) -> Tensor:
        return fed[0]

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None
