"""The recorder of MindSpore: how tensors are looked at and gradients awaited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import mindspore
from mindspore import Tensor
from mindspore.common.api import _pynative_executor

from msprobe_hooks.extensions.mindspore import gradients
from msprobe_hooks.extensions.mindspore.elements import MindSporeElements, takes_gradient
from msprobe_hooks.extensions.mindspore.gradients import MindSporeEngine
from msprobe_hooks.extensions.mindspore.host_values import crc32, host, xor64
from msprobe_hooks.extensions.mindspore.recompute import is_recomputed, is_stop
from msprobe_hooks.extensions.mindspore.tensor_files import MindSporeTensorFiles
from msprobe_hooks.recording.array_statistics import Array, measure
from msprobe_hooks.recording.backward import Emit, tensors_in
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import TensorEntry
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.statistics import Statistics


class MindSporeRecorder(Recorder):
    """Records what runs in MindSpore's dynamic graph mode (PyNative)."""

    framework = "mindspore"
    elements_class = MindSporeElements
    engine = MindSporeEngine()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        # A tensor that is measured and written is brought to the host once.
        self._last: tuple[Tensor, Array] | None = None

    def api_call(self, name: str, frame: FrameType | None) -> ApiCall:
        """Return the record, in the making, of a call of this name that is made in ``frame``."""
        return ApiCall(self, name, frame)

    def is_grad_enabled(self) -> bool:
        """Return whether this runs inside a gradient function."""
        return bool(_pynative_executor.enable_grad())

    is_recompute = staticmethod(is_recomputed)

    def is_failure(self, error: BaseException) -> bool:
        """Return whether a call that raised this has gone wrong; one that ends a recomputation has not."""
        return not is_stop(error)

    def inputs(self, values: Any, awaited: Iterable[Tensor] = ()) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors_in(values, Tensor), awaited)

    def differentiated(self, values: Any) -> list[Tensor]:
        """Return the tensors that the gradient function differentiates by."""
        return [tensor for tensor in tensors_in(values, Tensor) if takes_gradient(tensor)]

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, where: str) -> None:
        """Call ``emit`` by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, self.listener, where)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Return a context in which nothing is differentiated and no call is recorded."""
        with self.suspended(), mindspore._no_grad():
            yield

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Return a context in which no call is recorded."""
        was_suspended, self.is_suspended = self.is_suspended, True
        try:
            yield
        finally:
            self.is_suspended = was_suspended

    def forget(self) -> None:
        """Measure everything anew, which is what happens anyway."""
        self._last = None

    def fetch_numbers(self, waiting: Iterable[Statistics]) -> None:
        """Do nothing: numbers are taken on the host."""

    def open_files(self, folder: Path) -> MindSporeTensorFiles:
        """Return what writes ``.npy`` files into a folder."""
        return MindSporeTensorFiles(folder)

    def _host(self, tensor: Tensor) -> Array:
        if self._last is None or self._last[0] is not tensor:
            self._last = (tensor, host(tensor))
        return self._last[1]

    def summarise(self, tensor: Tensor, entry: TensorEntry) -> None:
        """Fill a tensor's entry with what is collected of its values, now or when numbers are fetched."""
        self._last = None
        array = self._host(tensor)
        mode = self.settings.summary_mode
        statistics = Statistics() if mode == "xor" else measure(array)
        if mode != "statistics":
            statistics.checksum = xor64(array) if mode == "xor" else crc32(array)
        entry.fill(statistics)

    def save(self, tensor: Tensor, name: str) -> str:
        """Write a tensor to a file of that name, and return the name."""
        files = self.tensors
        if files is not None:
            files.save(self._host(tensor), name)
        self._last = None
        return name
