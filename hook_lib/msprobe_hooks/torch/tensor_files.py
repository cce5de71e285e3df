"""Tensors written in batches, each to a ``.pt`` file of its own."""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from msprobe_hooks.recording.statistics import Statistics
from msprobe_hooks.recording.tensor_files import TensorFiles
from msprobe_hooks.torch.pt_files import MOST_BYTES, write_pt
from msprobe_hooks.torch.strides import is_expanded, without_repeats
from msprobe_hooks.torch.write_batches import Batch, Buffers, SavedBefore, Waiting

_SPARSE = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_PLAIN_CLASSES = (Tensor, torch.nn.Parameter)
# Those that every torch copies; packed ones it may only know the bytes of.
_PLAIN_DTYPES = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
        torch.bool, torch.complex128, torch.complex64,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    }
)  # fmt: skip


# Expanded tensors of fewer bytes are written with all their elements, together with others.
_LARGE = 2**20


class TorchTensorFiles(TensorFiles):
    """Saves tensors as ``torch.save`` does, plain ones in batches, any other by ``torch.save`` itself.

    A subclass may write a batch in another way.
    """

    def __init__(self, folder: Path, buffers: Buffers) -> None:
        super().__init__(folder)
        self._buffers = buffers
        self._batches = 0
        # Gradients arrive on threads of their own. A signal handler may interrupt a save and flush in its thread.
        self._gathering = threading.RLock()
        self._batch: Batch | None = None
        # The statistics are held, so that no others can have their id.
        self._saved: dict[tuple[int, torch.Size], tuple[Statistics, str]] = {}

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy without a graph, contiguous where the layout has strides; what is expanded stays so."""
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            return tensor.clone()
        if _is_plain(tensor) and is_expanded(tensor):
            return without_repeats(tensor).clone(memory_format=torch.contiguous_format).expand(tensor.shape)
        return tensor.clone(memory_format=torch.contiguous_format)

    def size(self, copy: Tensor) -> int:
        """Return the bytes of the elements, without repeats."""
        if _is_plain(copy) and is_expanded(copy):
            copy = without_repeats(copy)
        return (copy._nnz() if copy.layout in _SPARSE else copy.numel()) * copy.element_size()

    def write(self, copy: Tensor, path: Path) -> None:
        """Write a ``.pt`` file."""
        torch.save(copy, path)

    def save(self, tensor: Tensor, name: str, known_by: Statistics | None = None) -> str:
        """Write a tensor, and return what its record says of the file.

        ``known_by`` is one object for as long as the tensor does not change.
        """
        if not _is_plain(tensor):
            return super().save(tensor, name)
        size = tensor.numel() * tensor.element_size()
        if size >= MOST_BYTES or (size >= _LARGE and is_expanded(tensor)):
            return super().save(tensor, name)
        with self._gathering:
            # In place a tensor may get another shape and keep its numbers.
            key = (id(known_by), tensor.shape)
            former = None if known_by is None else self._saved.get(key)
            if former is not None:
                return self.share(name, former[1])
            batch = self.batch_for(size)
            batch.add(name, tensor.detach(), size)
            data_name = self.data_name(batch, name)
            if known_by is not None:
                self._saved[key] = (known_by, data_name)
        self.wait_for_room()
        return data_name

    def flush(self, seconds: float = -1) -> None:
        """Write what is gathered, unless a save in another thread takes longer than ``seconds``."""
        if not self._gathering.acquire(timeout=seconds):
            return
        try:
            self._hand_over()
        finally:
            self._gathering.release()

    def data_name(self, batch: Batch, name: str) -> str:
        """Return what a record says of a tensor that is in a batch under this name."""
        return name

    def share(self, name: str, former: str) -> str:
        """Write a tensor that was saved before, of which a record says ``former``, by its own name too.

        Returns what its record says.
        """
        self.batch_for(0).entries.append(SavedBefore(name, former))
        return name

    def write_batch(self, batch: Batch) -> None:
        """Write a batch, in the thread."""
        for entry in batch.entries:
            path = self.folder / entry.name
            if isinstance(entry, SavedBefore):
                self.attempt(partial(_share, self.folder / entry.former, path), 0, entry.name)
            else:
                self.attempt(partial(_write, entry, path), entry.size, entry.name)

    def batch_for(self, size: int) -> Batch:
        """Return the batch that takes the next tensor, of so many bytes."""
        if self._batch is not None and not self._batch.has_room(size):
            self._hand_over()
        if self._batch is None:
            self._batch = Batch(self._buffers.take(), self._batches)
            self._batches += 1
        return self._batch

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            self.queue(partial(self._finish, batch), batch.size)

    def _finish(self, batch: Batch) -> None:
        self.write_batch(batch)
        self._buffers.give(batch.buffer)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether all that is to be saved of a tensor are its elements, shape and dtype."""
    return (
        type(tensor) in _PLAIN_CLASSES
        and tensor.dtype in _PLAIN_DTYPES
        and tensor.layout is torch.strided
        and not (tensor.is_meta or tensor.is_nested or torch._C._functorch.is_functorch_wrapped_tensor(tensor))
    )


def _write(tensor: Waiting, path: Path) -> None:
    write_pt(path, tensor.dtype, tensor.shape, tensor.elements())


def _share(former: Path, path: Path) -> None:
    """Give a file another name; where the file system has one name for each, copy it."""
    try:
        os.link(former, path)
    except OSError:
        path.unlink(missing_ok=True)
        shutil.copyfile(former, path)
