"""Tensors named on the command line: those of a file, of a dump's record, or of a saved case.

A file's first bytes decide what it is, not its name. Nothing is unpickled but tensors: torch's files are read with
``weights_only``, numpy's without pickle. Large files stay where they are, mapped.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch

from msprobe_hooks.dump.containers import find_tensor, is_stored_as_bytes
from msprobe_hooks.dump.npy import header_of
from msprobe_hooks.dump.reader import open_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.values import Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import did_you_mean, escaped_name, listed, numbered
from msprobe_hooks.regular_files import open_regular
from msprobe_hooks.torch.torch_files import RefusedFileError, load_torch_file
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.engine.values.tensor_files import load_tensor, read_contained
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.checkpoint.leaves import TreeError, leaves
from pytest_msprobe.results.outcomes import Skip

_NUMPY = b"\x93NUMPY"
_SEPARATOR = "::"
_KNOWN = "a .npy, .pt or .safetensors file, the dump.json of a recording with ::RECORD, or the folder of a saved case"


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor by its name in the file: what is recorded of it, and its elements where they can be read."""

    name: str
    value: Value
    tensor: torch.Tensor | None = None
    problem: str = ""


def open_named(word: str) -> list[Named]:
    """Return the tensors that ``FILE`` or ``FILE::NAME`` names; a name is a tensor's, or a record's of a dump.

    Raises CommandError or DumpError, which name what is wrong and what to do.
    """
    place, _, name = word.partition(_SEPARATOR)
    path = Path(place)
    try:
        if not path.exists():
            raise CommandError(f"{path}: no such file or directory; pass {_KNOWN}")
        if path.is_dir():
            return _of_folder(path, name)
        if path.suffix == ".json":
            return _of_record(path, name)
        return _chosen(path, list(_distinct(_of_file(path))), name)
    except OSError as error:
        raise CommandError(f"{path}: cannot be read: {error.strerror}") from None


def _distinct(tensors: Iterable[Named]) -> Iterator[Named]:
    """Yield tensors, those that are called alike with a number, as ``{"a": {"b": ...}}`` and ``{"a.b": ...}`` are."""
    every = list(tensors)
    for tensor, name in zip(every, numbered(escaped_name(tensor.name) for tensor in every), strict=True):
        yield replace(tensor, name=name)


def _of_folder(folder: Path, name: str) -> list[Named]:
    from pytest_msprobe.modes.check.saved_case import JSON_NAME

    if (folder / JSON_NAME).is_file():
        return _chosen(folder, list(_distinct(_of_case(folder))), name)
    dumps = find_dumps(folder)
    if len(dumps) > 1:
        raise CommandError(f"{folder}: {len(dumps)} dumps found; pass one of them, such as {dumps[0]}")
    return _of_record(dumps[0], name)


def _of_record(path: Path, name: str) -> list[Named]:
    dump = open_dump(path)
    if name not in dump.records:
        problem = f"no record {name!r}{did_you_mean(name, dump.records)}" if name else "no record named"
        raise CommandError(
            f"{path}: {problem}; pass {path}{_SEPARATOR}RECORD, where RECORD is one of {listed(dump.records) or 'none'}"
        )
    return [_recorded(placed.place, placed.value, dump.tensor_folder) for placed in read_values(dump, name)]


def _recorded(place: str, value: Value, folder: Path) -> Named:
    if not value.data_name:
        return Named(place, value)
    element = TensorElement(value.type, torch_dtype_name(value.dtype), value.shape, data_name=value.data_name)
    try:
        return Named(place, value, load_tensor(element, folder, mapped=True))
    except (Skip, DumpError) as error:
        return Named(place, value, problem=str(error))


def _of_case(folder: Path) -> Iterator[Named]:
    from pytest_msprobe.modes.check.saved_case import TENSORS_NAME, read_case
    from pytest_msprobe.storage.limits import TensorFileError
    from pytest_msprobe.storage.tensors import read_tensor

    for name, stored in read_case(folder).tensors.items():
        try:
            yield _named(name, read_tensor(folder / TENSORS_NAME, name, stored))
        except (TensorFileError, Skip) as error:
            yield Named(name, Value(name, "torch.Tensor", stored.dtype, stored.shape), problem=str(error))


def _chosen(path: Path, tensors: list[Named], name: str) -> list[Named]:
    if not name:
        return tensors
    matching = [tensor for tensor in tensors if tensor.name == name]
    if not matching:
        names = [tensor.name for tensor in tensors]
        its = listed(names) or "none"
        raise CommandError(f"{path}: no tensor {name!r}{did_you_mean(name, names)}; its tensors are {its}")
    return matching


def _of_file(path: Path) -> Iterator[Named]:
    with open_regular(path) as file:
        beginning = file.read(16)
    if beginning.startswith(_NUMPY):
        yield _named("", _numpy_tensor(path))
    elif _is_archive(path) or beginning.startswith(b"\x80"):
        yield from _leaves(path, _torch_content(path))
    elif beginning[8:9] == b"{" or path.suffix == ".safetensors":
        yield from _safetensors(path)
    else:
        what = "a truncated archive" if beginning.startswith(b"PK") else "not a file of tensors"
        what = what if beginning else "empty file"
        raise CommandError(f"{path}: {what}; pass {_KNOWN}")


def _is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, whole or damaged."""
    try:
        return is_zipfile(path)
    except BadZipFile:
        return True


def _numpy_tensor(path: Path) -> torch.Tensor:
    import numpy as np

    try:
        header = header_of(path)
        if math.prod(header.shape):
            order = "F" if header.fortran_order else "C"
            array = np.memmap(path, header.dtype, "c", header.offset, header.shape, order)  # type: ignore[call-overload]
        else:
            array = np.empty(header.shape, header.dtype)
        # torch reads the machine's own order of bytes alone.
        return torch.from_numpy(array.astype(header.dtype.newbyteorder("="), copy=False))
    except (ValueError, TypeError) as error:
        raise CommandError(f"{path}: not a readable .npy file: {_first_line(error)}; copy or write it again") from None


def _torch_content(path: Path) -> Any:
    try:
        if _is_archive(path) and any(name.endswith(".npy") for name in ZipFile(path).namelist()):
            raise CommandError(f"{path}: an archive of numpy; unpack it and pass one of its .npy files")
        with warnings.catch_warnings():
            # Warnings of unusual files do not help to read them.
            warnings.simplefilter("ignore")
            return load_torch_file(path, mapped=True)
    except CommandError:
        raise
    except RefusedFileError as error:
        raise CommandError(f"{path}: {error}") from None
    except BadZipFile as error:
        raise CommandError(f"{path}: a damaged archive: {error}; copy the file again") from None
    except Exception as error:
        # Bytes that are not tensors make torch's reader raise almost anything.
        raise CommandError(f"{path}: {_refused(str(error))}") from None


def _refused(text: str) -> str:
    marks = ("GLOBAL ", "Unsupported operand", "Unsupported class", "weights_only")
    if any(mark in text for mark in marks):
        _, _, rest = text.partition("GLOBAL ")
        what = f" ({rest.split()[0]})" if rest else ""
        return f"pickled objects{what} are not loaded, as they could run any code; save only the tensors"
    return f"not a readable file of tensors: {_first_line(text)}; copy or write it again"


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _safetensors(path: Path) -> Iterator[Named]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise CommandError(f"{path}: safetensors is not installed; pip install 'pytest-msprobe[cases]'") from None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118
                if is_stored_as_bytes(metadata.get(name, "")):
                    yield _contained(path, name)
                else:
                    yield _named(name, file.get_tensor(name))
    except SafetensorError as error:
        raise CommandError(f"{path}: not a readable safetensors file: {error}; copy or write it again") from None


def _contained(path: Path, name: str) -> Named:
    """Return a tensor of which a recording's container holds other bytes than its elements', as compressed ones."""
    stored = find_tensor(path, name)
    try:
        return _named(name, read_contained(path, name, mapped=True))
    except (Skip, DumpError) as error:
        return Named(name, Value(name, "torch.Tensor", f"torch.{stored.dtype}", stored.shape), problem=str(error))


def _leaves(path: Path, tree: Any) -> Iterator[Named]:
    """Yield the tensors of a nested file by their dotted names, and its numbers and texts."""
    try:
        for name, leaf in leaves(tree):
            if isinstance(leaf, torch.Tensor):
                yield _named(name, leaf.detach())
            else:
                yield Named(name, Value(name, type(leaf).__name__, text=str(leaf)))
    except TreeError as error:
        raise CommandError(f"{path}: {error}") from None


def _named(name: str, tensor: torch.Tensor) -> Named:
    value = Value(name, "torch.Tensor", str(tensor.dtype), tuple(tensor.shape))
    if tensor.is_meta:
        return Named(name, value, problem="saved without elements, from torch's meta device")
    if not tensor.is_quantized and not _is_computable(tensor.dtype):
        return Named(name, value, problem=f"torch does not compute with {tensor.dtype}")
    return Named(name, value, tensor)


def _is_computable(dtype: torch.dtype) -> bool:
    """Return whether torch widens elements of a dtype: of packed ones it knows the bytes alone."""
    try:
        torch.zeros(1, dtype=torch.uint8).expand(dtype.itemsize).contiguous().view(dtype).to(torch.complex128)
    except RuntimeError:
        return False
    return True
