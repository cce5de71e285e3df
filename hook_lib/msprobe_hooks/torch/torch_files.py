"""Files that torch saved: the one place that calls ``torch.load``.

torch reads them with ``weights_only``, which older versions do not keep to: before 2.6 a TorchScript archive or a
legacy ``.tar`` file runs code (CVE-2025-32434), before 2.10 a crafted pickle writes outside of its memory
(CVE-2026-24747). The first two are refused here before torch sees them; of the rest, `weights_only_warning` warns.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

from msprobe_hooks.regular_files import open_regular

#: The first version of torch whose ``weights_only`` is not known to be unsafe.
SAFE_SINCE = (2, 10)

_ZIP = b"PK\x03\x04"
# The records at the end of a zip archive, with the bytes that each takes.
_END, _END_BYTES = b"PK\x05\x06", 22
_LOCATOR, _LOCATOR_BYTES = b"PK\x06\x07", 20
_END64_BYTES = 56
# Most archives end without a comment, and an archive of one tensor has a short directory.
_USUAL_BYTES = 2048
_LONGEST_END = _LOCATOR_BYTES + _END_BYTES + 0xFFFF
_LARGEST_DIRECTORY = 2**28


class RefusedFileError(ValueError):
    """A file that torch may not read, for its versions before 2.6 run what it holds; the text says what it is."""


def load_torch_file(source: Path | BinaryIO, *, mapped: bool = False, allowed: Sequence[Any] = ()) -> Any:
    """Return what torch saved, weights only and on the CPU; left in the file where that is possible and ``mapped``.

    Of classes other than tensors and containers, those that are ``allowed`` are read. Raises RefusedFileError for
    TorchScript and ``.tar``, OSError for what is not a regular file, and almost anything for bytes that torch did not
    save.
    """
    import torch

    is_archive = _checked(source)
    # Indices outside of a sparse tensor would reach any memory.
    with _allowing(allowed), torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
        # What torch wrote before 1.6 cannot be mapped.
        mapped = mapped and is_archive
        file = str(source) if isinstance(source, Path) else source
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)


def weights_only_warning() -> str:
    """Return a line about torch's version where its files need trust, empty where they need none."""
    try:
        installed = _installed_torch()
    except PackageNotFoundError:
        return ""
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    if numbers and (int(numbers[1]), int(numbers[2])) >= SAFE_SINCE:
        return ""
    since = ".".join(map(str, SAFE_SINCE))
    return (
        f"torch {installed} is not safe against crafted .pt files, even with weights_only (CVE-2026-24747): read only "
        f"files that you trust, or upgrade to torch {since}, or record and save safetensors"
    )


@cache
def _installed_torch() -> str:
    return version("torch")


def _allowing(classes: Sequence[Any]) -> AbstractContextManager[None]:
    import torch

    # torch before 2.5 has no such list, and refuses the classes by name.
    allow = getattr(torch.serialization, "safe_globals", None) if classes else None
    return nullcontext() if allow is None else allow(list(classes))


def _checked(source: Path | BinaryIO) -> bool:
    """Return whether a file is a zip archive as torch takes it. Raises RefusedFileError."""
    if isinstance(source, Path):
        with open_regular(source, buffering=0) as file:
            return _checked(file)
    start = source.tell()
    is_archive = source.read(len(_ZIP)) == _ZIP
    if is_archive:
        _refuse_torchscript(source)
    else:
        source.seek(start)
        _refuse_tar(source)
    source.seek(start)
    return is_archive


def _refuse_torchscript(file: BinaryIO) -> None:
    directory = _directory(file)
    # Below the archive's own folder, whose name the file had when it was written.
    if b"/constants.pkl" in directory or b"/code/" in directory:
        raise RefusedFileError("a TorchScript archive, which holds code and is not read; save its tensors alone")


def _refuse_tar(file: BinaryIO) -> None:
    try:
        # As torch asks it.
        tarfile.open(fileobj=file, mode="r:", format=tarfile.PAX_FORMAT).close()
    except tarfile.TarError:
        return
    raise RefusedFileError("a .tar file of an old torch, which may run code and is not read; save its tensors again")


def _directory(file: BinaryIO) -> bytes:
    """Return a zip archive's directory and what follows it, where torch's own reader looks for it."""
    size = file.seek(0, 2)
    tail, end = b"", -1
    for length in (_USUAL_BYTES, _LONGEST_END):
        file.seek(max(0, size - length))
        tail = file.read()
        end = tail.rfind(_END, 0, len(tail) - _END_BYTES + len(_END))
        if end >= _LOCATOR_BYTES:
            break
    else:
        raise BadZipFile("it is cut off")
    start = int.from_bytes(tail[end + 16 : end + 20], "little")
    if tail.startswith(_LOCATOR, end - _LOCATOR_BYTES):
        file.seek(int.from_bytes(tail[end - 12 : end - 4], "little"))
        record = file.read(_END64_BYTES)
        # Of two places, the reader takes one or the other: both are looked at.
        start = min(start, int.from_bytes(record[48:56], "little"))
    if size - start > _LARGEST_DIRECTORY:
        raise BadZipFile("its list of files is damaged")
    if start >= size - len(tail):
        return tail[start - size :]
    file.seek(start)
    return file.read()
