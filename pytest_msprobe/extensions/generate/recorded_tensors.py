"""The recorded tensors that generated tests use: checked, and given names that are safe anywhere."""

from __future__ import annotations

import hashlib
import io
import re
from functools import partial
from pathlib import Path, PurePosixPath

import torch

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.tensor_files.containers import split_name
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.extensions.explore.tensor_repr import MOST_NUMBERS
from pytest_msprobe.extensions.generate.output_folder import Content

FOLDER = "tensors"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
_LONGEST = 120


class TensorFiles:
    """Which files of a dump's tensor folder are copied, and to where below the output folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        # Some file systems do not distinguish upper from lower case.
        self._taken: set[str] = set()
        #: By its new path, which is relative and has forward slashes: the file to copy, or what reads a tensor that
        #: lies with others in one file, as a file of its own.
        self.copies: dict[str, Content] = {}

    def path_of(self, element: TensorElement) -> str | None:
        """Return the new path of a tensor's file, None where no file was recorded.

        Raises Skip where the file is missing, DumpError where it is not the tensor as recorded, below its folder.
        """
        file = element.data_name
        if file is None:
            return None
        load_tensor(element, self._folder)
        if file not in self._names:
            contained = split_name(file)
            name = safe_name(file if contained is None else f"{contained[1]}.pt")
            if name.lower() in self._taken:
                name = with_digest(name, file)
            self._taken.add(name.lower())
            self._names[file] = path = f"{FOLDER}/{name}"
            self.copies[path] = self._folder / file if contained is None else partial(self._extracted, element)
        return self._names[file]

    def _extracted(self, element: TensorElement) -> bytes:
        return tensor_bytes(load_tensor(element, self._folder))


def is_large(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is too large to be spelled in a module."""
    if tensor.numel() <= MOST_NUMBERS or not tensor.is_contiguous():
        return tensor.numel() > MOST_NUMBERS
    elements = tensor.detach().view(-1).view(torch.uint8).view(tensor.numel(), -1)
    return not bool((elements == elements[:1]).all())


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Return the file of a tensor, which `load_tensor` reads; its elements are stored in their order."""
    file = io.BytesIO()
    torch.save(tensor.detach().contiguous(), file)
    return file.getvalue()


def safe_name(recorded: str) -> str:
    """Return a file name for what a dump calls a file: itself where that is safe, else cleaned and made unique."""
    cleaned = _UNSAFE.sub("_", recorded).lstrip(".")
    if cleaned == recorded and len(recorded) <= _LONGEST:
        return recorded
    return with_digest(cleaned[-_LONGEST:].lstrip("."), recorded)


def with_digest(name: str, recorded: str) -> str:
    """Return a file name that no other recorded name gets."""
    path = PurePosixPath(name)
    digest = hashlib.blake2b(recorded.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{path.stem}_{digest}{path.suffix}"
