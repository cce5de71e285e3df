"""Tensors written in batches, each batch to one container."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msprobe_hooks.dump.containers import SUFFIX, Described, beginning, name_in
from msprobe_hooks.recording.gathered_write import write_gathered
from msprobe_hooks.torch.batches import Batch, Waiting
from msprobe_hooks.torch.tensor_files import TorchTensorFiles


class ContainerFiles(TorchTensorFiles):
    """Saves plain tensors in containers, one for each batch, any other by ``torch.save`` to a file of its own.

    A tensor that calls share, unchanged, is in one container; the record of each names it there.
    """

    def data_name(self, batch: Batch, name: str) -> str:
        """Return the container's file and the tensor's name in it."""
        return name_in(_file_name(batch), _name(name))

    def share(self, name: str, former: str) -> str:
        """Return what the former record says."""
        return former

    def write_batch(self, batch: Batch) -> None:
        """Write a batch to its container."""
        file = _file_name(batch)
        self.attempt(partial(_write, batch, self.folder / file), batch.size, file)


def _file_name(batch: Batch) -> str:
    return f"{batch.number}{SUFFIX}"


def _name(file_name: str) -> str:
    """Return the name of a tensor whose own file would have this name: without suffix, as text that JSON can hold."""
    return file_name.removesuffix(".pt").encode(errors="backslashreplace").decode()


def _write(batch: Batch, path: Path) -> None:
    """Write a container, under another name until it is whole."""
    # Of two tensors that are called alike the later one is kept, as of their files.
    tensors = {entry.name: entry for entry in batch.entries if isinstance(entry, Waiting)}
    # The format lets no gap between tensors, and where those of larger elements come first all are aligned.
    in_order = sorted(tensors.values(), key=lambda tensor: -tensor.dtype.itemsize)
    head = beginning(
        Described(_name(tensor.name), str(tensor.dtype).removeprefix("torch."), tensor.shape, tensor.dtype.itemsize)
        for tensor in in_order
    )
    part = path.with_name(f"{path.name}.part")
    write_gathered(part, (head, *(tensor.elements() for tensor in in_order)))
    part.replace(path)
