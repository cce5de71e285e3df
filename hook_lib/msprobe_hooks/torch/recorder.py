"""The recorder of PyTorch: how tensors are looked at and gradients awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from msprobe_hooks.dump.derived_layouts.view_calls import RESHAPES, SHAPED, VIEWS
from msprobe_hooks.dump.names import MODULE_TYPES, split_called
from msprobe_hooks.recording.backward import Emit, tensors_in
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import TensorEntry
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.statistics import Statistics
from msprobe_hooks.torch import gradients
from msprobe_hooks.torch.checksums import take_crc32, xor64
from msprobe_hooks.torch.container_files import ContainerFiles
from msprobe_hooks.torch.elements import TorchElements, tensor_entry
from msprobe_hooks.torch.gradients import TorchEngine
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recompute import is_recomputed, is_stop
from msprobe_hooks.torch.statistics import Deferred, fetch, is_readable, local_part, measure
from msprobe_hooks.torch.statistics_cache import StatisticsCache
from msprobe_hooks.torch.strides import is_expanded
from msprobe_hooks.torch.tensor_files import TorchTensorFiles
from msprobe_hooks.torch.undefined_memory import UndefinedMemory
from msprobe_hooks.torch.write_batches import Buffers

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_VIEWS = VIEWS.keys() | RESHAPES.keys() | SHAPED.keys() | {"alias", "as_strided", "slice"}

# 256 MiB, a choice: activations are smaller, the buckets of gradients of which ZeRO takes views are larger.
_LARGE = 2**28
_OF_A_VIEW = "values, as it is large and its call only takes a view of it or moves values"
_EXPANDED = "a checksum, as it is expanded to more than 256 MiB"


class TorchRecorder(Recorder):
    """Records what runs in PyTorch."""

    framework = "pytorch"
    elements_class = TorchElements
    engine = TorchEngine()

    # Asked at every call, so nothing comes between the question and the answer.
    quiet = staticmethod(NoDispatch)
    is_grad_enabled = staticmethod(torch._C.is_grad_enabled)
    is_recompute = staticmethod(is_recomputed)

    def __init__(self, settings: Settings) -> None:
        is_ordered = settings.summary_mode != "statistics"
        self.measured = StatisticsCache(self._measure_for(settings.summary_mode), is_ordered=is_ordered)
        self.shared = self._shared_entry
        self._buffers = Buffers()
        #: Memory that the program made and has not written to.
        self.undefined = UndefinedMemory()
        super().__init__(settings)

    def api_call(self, name: str, frame: FrameType | None) -> ApiCall:
        """Return the record, in the making, of a call of this name that is made in ``frame``."""
        return ApiCall(self, name, frame)

    def note_undefined(self, call: ApiCall, args: Any, kwargs: Any) -> bool:
        """Return whether a call that is about to be made passes on undefined memory, and note it in its record."""
        passes_on = self.undefined.passes_on(split_called(call.name)[0], args, kwargs)
        if passes_on:
            call.note_undefined("input.0")
        return passes_on

    def inputs(self, values: Any, awaited: Iterable[Tensor] = ()) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors_in(values, Tensor), awaited)

    def differentiated(self, values: Any) -> list[Tensor]:
        """Return the tensors that require a gradient."""
        return [tensor for tensor in tensors_in(values, Tensor) if tensor.requires_grad]

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, where: str) -> None:
        """Call ``emit`` by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, self.listener, where)

    def is_failure(self, error: BaseException) -> bool:
        """Return whether an exception is another than the one that ends a recomputation."""
        return not is_stop(error)

    def forget(self) -> None:
        """Measure everything anew."""
        self.measured.forget()

    def has_met_non_finite(self) -> bool:
        """Return whether inf or nan was measured since this was last asked."""
        found, self.measured.has_met_non_finite = self.measured.has_met_non_finite, False
        return found

    def is_stale(self, value: Any) -> bool:
        """Return whether a tensor holds inf or nan that it did not hold when it was measured, though unchanged."""
        return type(value) in _PLAIN and self.measured.is_stale(value)

    def fetch_numbers(self, waiting: Iterable[Statistics]) -> None:
        """Bring the numbers that wait on devices to the host, with few transfers."""
        fetch([statistics for statistics in waiting if isinstance(statistics, Deferred)])

    def open_files(self, folder: Path) -> TorchTensorFiles:
        """Return what writes tensors into a folder, in the files that were asked for."""
        if self.settings.tensor_files == "safetensors":
            return ContainerFiles(folder, self._buffers, compresses=self.settings.compression != "none")
        return TorchTensorFiles(folder, self._buffers)

    def _shared_entry(self, tensor: Tensor, storages: list[int]) -> TensorEntry:
        if type(tensor) not in _PLAIN:
            entry, storage = tensor_entry(tensor)
            storages.append(storage)
            self.summarise(tensor, entry)
            return entry
        statistics = self.measured(tensor)
        entry = statistics.entry
        if entry is None or entry.requires_grad is not tensor.requires_grad:
            entry, statistics.storage = tensor_entry(tensor)
            statistics.entry = entry
            self.fill(entry, statistics)
        storages.append(statistics.storage)
        return entry

    def summarise(self, tensor: Tensor, entry: TensorEntry) -> None:
        """Fill a tensor's entry with what is collected of its values, now or when numbers are fetched."""
        part = local_part(tensor)
        if part is not tensor:
            # A write to a distributed tensor leaves the version counter of its part as it was.
            self.measured.discard(part)
        self.fill(entry, self.measured(part))

    def save(self, tensor: Tensor, name: str) -> str | UnsetType:
        """Write a tensor under that name, and return what its record says of the file; UNSET where none is written."""
        files = self.tensors
        if not isinstance(files, TorchTensorFiles):
            return name
        part = local_part(tensor)
        if part.numel() * part.element_size() >= _LARGE and not is_expanded(part) and _only_views(name):
            self.summary.left_out[_OF_A_VIEW] += 1
            return UNSET
        return files.save(part, name, self.measured.known(part))

    def _measure_for(self, summary_mode: str) -> Callable[[Tensor], Statistics]:
        return {"statistics": measure, "md5": self._with_crc32, "xor": self._with_xor64}[summary_mode]

    def _with_crc32(self, tensor: Tensor) -> Statistics:
        result = measure(tensor)
        if not self._is_too_large(tensor):
            take_crc32(tensor, result, self.checksums)
        return result

    def _with_xor64(self, tensor: Tensor) -> Statistics:
        return Statistics(checksum=None if self._is_too_large(tensor) else xor64(tensor))

    def _is_too_large(self, tensor: Tensor) -> bool:
        """Return whether a checksum would go through far more bytes than the tensor has in memory."""
        if not is_readable(tensor) or tensor.numel() * tensor.element_size() < _LARGE or not is_expanded(tensor):
            return False
        self.summary.left_out[_EXPANDED] += 1
        return True


def _only_views(name: str) -> bool:
    """Return whether a tensor's name, as Tensor.view.0.forward.input.0, is of a call that only moves values."""
    kind, _, rest = name.partition(".")
    return kind not in MODULE_TYPES and rest.partition(".")[0] in _VIEWS
