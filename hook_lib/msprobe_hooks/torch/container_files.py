"""Tensors written in batches, each batch to one container."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from msprobe_hooks.dump.tensor_files.compression import compressed
from msprobe_hooks.dump.tensor_files.containers import SUFFIX, Described, beginning, name_in
from msprobe_hooks.recording.vectored_write import Piece, write_gathered
from msprobe_hooks.torch.tensor_files import TorchTensorFiles
from msprobe_hooks.torch.write_batches import Batch, Buffers, Waiting


class ContainerFiles(TorchTensorFiles):
    """Saves plain tensors in containers, one for each batch, any other by ``torch.save`` to a file of its own.

    A tensor that calls share, unchanged, is in one container; the record of each names it there. With ``compresses``
    those are compressed, in the thread, that become smaller by it; none while that would hold
    up the program.
    """

    def __init__(self, folder: Path, buffers: Buffers, *, compresses: bool = False) -> None:
        super().__init__(folder, buffers)
        self._compresses = compresses

    def data_name(self, batch: Batch, name: str) -> str:
        """Return the container's file and the tensor's name in it."""
        return name_in(_file_name(batch), _name(name))

    def share(self, name: str, former: str) -> str:
        """Return what the former record says."""
        return former

    def write_batch(self, batch: Batch) -> None:
        """Write a batch to its container."""
        file = _file_name(batch)
        self.attempt(partial(self._write, batch, self.folder / file), 0, file)

    def _write(self, batch: Batch, path: Path) -> None:
        """Write a container, under another name until it is whole."""
        # Of two tensors that are called alike the later one is kept, as of their files.
        tensors = {entry.name: entry for entry in batch.entries if isinstance(entry, Waiting)}
        stored = [_stored(tensor, self._compresses and not self.holds_up(batch.size)) for tensor in tensors.values()]
        # The format lets no gap between tensors, and where those of larger elements come first all are aligned.
        stored.sort(key=lambda pair: -pair[0].item_size if pair[0].frame is None else 0)
        pieces = [beginning(described for described, _ in stored), *(piece for _, piece in stored)]
        part = path.with_name(f"{path.name}.part")
        try:
            write_gathered(part, pieces)
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise
        self.bytes += sum(map(len, pieces))


def _file_name(batch: Batch) -> str:
    return f"{batch.number}{SUFFIX}"


def _name(file_name: str) -> str:
    """Return the name of a tensor whose own file would have this name: without suffix, as text that JSON can hold."""
    return file_name.removesuffix(".pt").encode(errors="backslashreplace").decode()


def _stored(tensor: Waiting, compresses: bool) -> tuple[Described, Piece]:
    """Return what a container says of a tensor, and what it holds: the elements or, where smaller, their frame."""
    elements, item_size = tensor.elements(), tensor.dtype.itemsize
    frame = compressed(elements, item_size) if compresses else None
    dtype = str(tensor.dtype).removeprefix("torch.")
    described = Described(_name(tensor.name), dtype, tensor.shape, item_size, None if frame is None else len(frame))
    return described, elements if frame is None else frame
