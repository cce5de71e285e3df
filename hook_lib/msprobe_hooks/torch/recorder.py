"""The recorder of PyTorch (statistics, checksums, gradients), and functions that a user registers by name."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, TypeAlias

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from msprobe_hooks.dump.derived_layouts.view_calls import RESHAPES, SHAPED, VIEWS
from msprobe_hooks.dump.names import MODULE_TYPES, split_called
from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.backward import Emit, tensors_in
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.checksums import Bytes, ChecksumThread
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import TensorEntry
from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.torch import gradients
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.elements import TorchElements, tensor_entry
from msprobe_hooks.torch.gradients import TorchEngine, is_recomputed, is_stop
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import Deferred, fetch, is_readable, is_symbolic, local_part, measure
from msprobe_hooks.torch.tensor_files import ContainerFiles, TorchTensorFiles
from msprobe_hooks.torch.tensor_memory import UndefinedMemory, as_bytes, is_expanded, strides
from msprobe_hooks.torch.write_batches import Buffers


def take_crc32(tensor: Tensor, statistics: Statistics, thread: ChecksumThread) -> None:
    """Set the statistics' checksum to the CRC-32 of a tensor's bytes, of a device's by the thread."""
    if not is_readable(tensor):
        return
    if tensor.is_cpu:
        statistics.checksum = checksums.crc32(_raw(tensor))
    else:
        thread.take(_raw(tensor), statistics)


def xor64(tensor: Tensor) -> str | None:
    """Return the 64-bit XOR of a tensor's bytes."""
    return checksums.xor64(_raw(tensor)) if is_readable(tensor) else None


def _raw(tensor: Tensor) -> Bytes:
    """Return the contiguous bytes of a tensor on the host; of a CPU's contiguous tensor they are its own memory."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    flat = tensor.contiguous()
    return as_bytes(flat if flat.is_cpu else flat.cpu())


# Tensors that are remembered before the dead are dropped. A choice: more would hold memory, fewer would measure
# parameters again.
_REMEMBERED = 1 << 14

# To measure fewer elements takes no longer than to find where they are.
_LEAST_VIEWED = 1 << 10

#: Where the elements of a tensor lie in memory that it shares with others, and as what they are read.
_Place: TypeAlias = tuple[Any, ...]


class StatisticsCache:
    """Remembers what was measured of a tensor, for as long as that tensor exists unchanged.

    A tensor is unchanged while it is the same object with the same version counter. Memory that was handed out past the
    counter (``x.data``, ``x.numpy()``, ``x.data_ptr()``) is measured each time from then on. Writes that leave the
    counter must be reported: running statistics of normalisation (``discard``), collectives, fused optimizers and the
    gradient buckets of data parallelism (``forget``).

    On a CPU a view is not measured where its base, or another view, of the same elements was: they share one counter.
    ``is_ordered`` says that a measure depends on the order of elements, as a checksum does.
    """

    def __init__(self, measure: Callable[[Tensor], Statistics], *, is_ordered: bool = False) -> None:
        self._measure = measure
        self._is_ordered = is_ordered
        self._known: dict[int, tuple[weakref.ref[Tensor], int, Statistics]] = {}
        # Of views, by the ids of their bases.
        self._views: dict[int, tuple[weakref.ref[Tensor], dict[_Place, tuple[int, Statistics]]]] = {}
        self._exposed: dict[int, weakref.ref[Tensor]] = {}
        #: Whether something that was measured held inf or nan; who looks sets it back.
        self.has_met_non_finite = False

    def __call__(self, tensor: Tensor) -> Statistics:
        """Return the statistics of a tensor, measuring it only where they are not known."""
        key = id(tensor)
        entry = self._known.get(key)
        if entry is not None and entry[0]() is tensor and entry[1] == tensor._version:
            return entry[2]
        base = tensor._base
        if tensor.is_inference() or key in self._exposed or id(base) in self._exposed:
            return self._measure(tensor)
        result = self._measure(tensor) if base is None else self._measure_view(tensor, base)
        if not result.is_finite and _is_non_finite(result):
            self.has_met_non_finite = True
        if len(self._known) >= _REMEMBERED:
            self._drop_the_dead()
        self._known[key] = (weakref.ref(tensor), tensor._version, result)
        return result

    def known(self, tensor: Tensor) -> Statistics | None:
        """Return what was measured of a tensor that has not changed since, None where that is not known."""
        entry = self._known.get(id(tensor))
        return entry[2] if entry is not None and entry[0]() is tensor and entry[1] == tensor._version else None

    def is_stale(self, tensor: Tensor) -> bool:
        """Return whether a tensor holds inf or nan that it did not hold when it was measured, and forget it then.

        Its memory was overwritten since without its version counter moving.
        """
        earlier = self.known(tensor)
        if (
            earlier is None
            or earlier.is_waiting
            or _is_non_finite(earlier)
            or not _is_non_finite(self._measure(tensor))
        ):
            return False
        self.discard(tensor)
        return True

    def expose(self, tensor: Tensor) -> None:
        """Note that a tensor's memory may from now on change without its version counter moving."""
        self.discard(tensor)
        for one in (tensor, _base(tensor)):
            if one is not None:
                self._exposed[id(one)] = weakref.ref(one, partial(self._end_exposure, id(one)))

    def discard(self, tensor: Tensor) -> None:
        """Measure a tensor anew next time."""
        for key in (id(tensor), id(_base(tensor))):
            self._known.pop(key, None)
            self._views.pop(key, None)

    def forget(self) -> None:
        """Measure everything anew, as after a step."""
        self._known.clear()
        self._views.clear()

    def _measure_view(self, tensor: Tensor, base: Tensor) -> Statistics:
        if not tensor.is_cpu or tensor.numel() < _LEAST_VIEWED or not is_readable(tensor):
            return self._measure(tensor)
        views = self._views.get(id(base))
        if views is None or views[0]() is not base:
            views = self._views[id(base)] = (weakref.ref(base), {})
        place = self._place(tensor)
        version, earlier = views[1].get(place, (None, None))
        if version != tensor._version:
            earlier = self.known(base)
            if earlier is None or self._place(base) != place:
                earlier = None
        if earlier is not None:
            # The entry of a record says the shape as well.
            result = copy(earlier)
            result.entry = None
            return result
        result = self._measure(tensor)
        views[1][place] = (tensor._version, result)
        return result

    def _place(self, tensor: Tensor) -> _Place:
        read_as = (tensor.dtype, tensor.storage_offset(), tensor.is_neg(), tensor.is_conj())
        return (*read_as, *strides(tensor, is_ordered=self._is_ordered))

    def _end_exposure(self, key: int, _: object) -> None:
        self._exposed.pop(key, None)

    def _drop_the_dead(self) -> None:
        self._views = {key: views for key, views in list(self._views.items()) if views[0]() is not None}
        self._known = {key: entry for key, entry in list(self._known.items()) if entry[0]() is not None}
        if len(self._known) >= _REMEMBERED // 2:
            self.forget()


def _is_non_finite(statistics: Statistics) -> bool:
    """Return whether the extrema are known, and one of them is inf or nan."""
    return any(isinstance(one, float) and one - one != 0 for one in (statistics.max, statistics.min))


def _base(tensor: Tensor) -> Tensor | None:
    """Return what a tensor is a view of, without asking a subclass."""
    with NoDispatch():
        return tensor._base


def version_of(tensor: Tensor) -> int:
    """Return the version counter, which each change of the values moves; -1 in inference mode, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return -1


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
        measures = {"statistics": measure, "md5": self._with_crc32, "xor": self._with_xor64}
        self.measured = StatisticsCache(measures[settings.summary_mode], is_ordered=is_ordered)
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
        if isinstance(values, Tensor):
            return [values] if values.requires_grad else []
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
        has_met, self.measured.has_met_non_finite = self.measured.has_met_non_finite, False
        return has_met

    def is_stale(self, value: Any) -> bool:
        """Return whether a tensor holds inf or nan that it did not hold when it was measured, though unchanged."""
        return type(value) in _PLAIN and self.measured.is_stale(value)

    def fetch_numbers(self, waiting: Iterable[Statistics]) -> None:
        """Fetch the numbers that wait on devices to the host, with few transfers."""
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
        if type(part) not in _PLAIN and is_symbolic(part):
            return UNSET
        if part.numel() * part.element_size() >= _LARGE and not is_expanded(part) and _only_views(name):
            self.summary.left_out[_OF_A_VIEW] += 1
            return UNSET
        return files.save(part, name, self.measured.known(part))

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


class CustomApi:
    """Records calls of ``module.api`` between ``begin`` and ``end``; what it calls inside is not recorded again.

    ``qualified`` is the name that they get. A Python function stays the same object. Any other callable is replaced in
    its module for that time.
    """

    def __init__(self, recorder: TorchRecorder, module: Any, api: str, qualified: str) -> None:
        self._recorder = recorder
        self._module = module
        self._api = api
        self._name = qualified
        self._interposed: Interposition | None = None
        self._replaced: Any = None

    def begin(self) -> None:
        """Watch the function."""
        function = getattr(self._module, self._api)
        if isinstance(function, FunctionType) and not function.__closure__:
            self._interposed = Interposition(function, self._around)
            return
        self._replaced = function

        def recording(*args: Any, **kwargs: Any) -> Any:
            return self._around(function, args, kwargs)

        setattr(self._module, self._api, recording)

    def end(self) -> None:
        """Leave the function as it was."""
        if self._interposed is not None:
            self._interposed.remove()
            self._interposed = None
        elif self._replaced is not None:
            setattr(self._module, self._api, self._replaced)
            self._replaced = None

    def _around(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        recorder = self._recorder
        if not recorder.is_recording or recorder.is_suspended or is_traced():
            return function(*args, **kwargs)
        call = recorder.api_call(f"{self._name}.{recorder.number(self._name)}.forward", sys._getframe(2))
        call.begin(args, kwargs)
        return call.run_as_a_whole(function, args, kwargs)
