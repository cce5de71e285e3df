"""The recorder of MindSpore, values on the host, and calls that ``recompute`` makes again in the backward pass."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.common.api import _pynative_executor

from msprobe_hooks.extensions.mindspore import gradients
from msprobe_hooks.extensions.mindspore.gradients import NO_PASS, MindSporeElements, MindSporeEngine, takes_gradient
from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.array_statistics import Array, measure
from msprobe_hooks.recording.backward import Emit, tensors_in
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.checksums import Bytes
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import TensorEntry
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.recording.tensor_files import TensorFiles
from msprobe_hooks.recording.vectored_write import write_npy

_MODULE: Final = sys.modules[mindspore.recompute.__module__]
# Which cells and exceptions it has depends on MindSpore's version; isinstance of none is never true.
_STOP: Final = getattr(_MODULE, "_StopRecomputationError", ())
_CELL: Final = getattr(_MODULE, "_RecomputeCell", ())
# What makes the calls again: a cell's own backward function; or, where nothing is entered anew, what brings the tensors
# that were not kept.
_AGAIN: Final = ("bprop", "unpack")

_ENGINE: Final = MindSporeEngine()


def is_recomputed(frame: FrameType | None) -> bool:
    """Return whether a call that is made in ``frame`` is made again, during the backward pass."""
    if _ENGINE.running_pass() == NO_PASS:
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _MODULE.__file__ and code.co_name in _AGAIN:
            return True
        frame = frame.f_back
    return False


def is_stop(error: BaseException) -> bool:
    """Return whether an exception is how MindSpore ends a recomputation that has brought what it was made for."""
    return isinstance(error, _STOP)


def is_recomputation_of(cell: nn.Cell) -> bool:
    """Return whether ``recompute`` put a cell around the program's; MindSpore never ends its hooks' calls."""
    return isinstance(cell, _CELL)


class Recomputation(NamedTuple):
    """A call of a recomputed cell: the object that makes it again, how many such calls wait, which pass repeats it."""

    owner: Any
    depth: int
    backward_pass: Hashable
    is_again: bool


def running_recomputation(frame: FrameType | None) -> Recomputation | None:
    """Return the innermost recomputation that a call in ``frame`` is made in, None where there is none."""
    while frame is not None:
        if frame.f_code.co_filename == _MODULE.__file__:
            held = frame.f_locals
            owner = held.get("self")
            name = frame.f_code.co_name
            if isinstance(owner, _CELL) and name in ("construct", "bprop"):
                # The calls of one cell are made again in the opposite order.
                is_again = name == "bprop"
                return Recomputation(owner, len(owner.args) + is_again, None, is_again)
            if name == "recompute" and owner is not None:
                return Recomputation(owner, 0, held.get("recompute_key"), True)
            if name == "recompute_without_reentrant" and "handle" in held:
                return Recomputation(held["handle"], 0, None, False)
        frame = frame.f_back
    return None


def host(tensor: Tensor) -> Array:
    """Return a tensor's values as an array; bfloat16, which numpy lacks, as float32."""
    return np.asarray(tensor.float().asnumpy() if tensor.dtype == mindspore.bfloat16 else tensor.asnumpy())


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one shape and dtype hold the same bits."""
    return bool(np.array_equal(_raw(one.asnumpy()), _raw(other.asnumpy())))


def crc32(array: Array) -> str:
    """Return the CRC-32 of the values' bytes."""
    return checksums.crc32(_raw(array))


def xor64(array: Array) -> str:
    """Return the 64-bit XOR of the values' bytes."""
    return checksums.xor64(_raw(array))


def _raw(array: Array) -> Bytes:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


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

    def open_files(self, folder: Path) -> _MindSporeTensorFiles:
        """Return what writes ``.npy`` files into a folder."""
        return _MindSporeTensorFiles(folder)

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


class _MindSporeTensorFiles(TensorFiles):
    """Saves the values of tensors as numpy does."""

    def copy(self, tensor: Array) -> Array:
        """Return a copy: a tensor's array shares its memory."""
        return np.array(tensor)

    def size(self, copy: Array) -> int:
        """Return the bytes of the elements."""
        return copy.nbytes

    def write(self, copy: Array, path: Path) -> None:
        """Write a ``.npy`` file."""
        with path.open("wb") as file:
            write_npy(file, copy)
