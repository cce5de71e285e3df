"""What a recorded tensor held, as a key: two tensors with the same key held the same numbers."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Hashable
from pathlib import Path, PurePath

from msprobe_hooks.dump.schema import Number, TensorElement
from msprobe_hooks.dump.tensor_files.containers import find_tensor, read_elements, split_name
from msprobe_hooks.errors import DumpError, MissingCodecError
from msprobe_hooks.regular_files import open_regular, read_regular
from pytest_msprobe.engine.values.system_memory import require_memory


def content_key(element: TensorElement, folder: Path) -> Hashable | None:
    """Return what equal tensors of one shape and dtype share; None where the dump says nothing of its values.

    A checksum where one was recorded and the four statistics. Where these cannot distinguish tensors, such as bools,
    and ``folder`` has the tensor's file, the checksum of the file's content too.
    """
    statistics = _statistics(element)
    checksum = element.checksum
    if checksum is None and (element.mean is None or element.norm is None) and element.data_name:
        checksum = file_checksum(folder, element.data_name)
    if checksum is None and element.max is None:
        return None
    return element.dtype, element.shape, checksum, statistics


def reshaped_key(element: TensorElement) -> Hashable | None:
    """Return what a tensor of floats shares with its views of another shape; None where this says too little.

    Mean and norm are no part of it: summed in another order they differ by roundings, see `is_reshaped`.
    """
    if type(element.max) is not float or type(element.min) is not float or element.norm is None:
        return None
    if element.max == element.min or not math.isfinite(element.max - element.min):
        return None
    return element.dtype, math.prod(element.shape), element.max, element.min


def is_reshaped(element: TensorElement, other: TensorElement) -> bool:
    """Return whether mean and norm of two tensors that share a `reshaped_key` are those of the same numbers.

    n numbers summed in another order move by at most n roundings of the sum of their magnitudes, in practice by far
    fewer: 1e-4 of the norm is what a thousand roundings of float32 do, and of half precision is one.
    """
    tolerance = 1e-3 if "16" in element.dtype else 1e-4
    if element.norm is None or other.norm is None or element.mean is None or other.mean is None:
        return False
    scale = max(abs(element.norm), abs(other.norm))
    return abs(element.norm - other.norm) <= tolerance * scale and abs(element.mean - other.mean) <= tolerance * scale


def _statistics(element: TensorElement) -> tuple[Hashable, ...]:
    return tuple(map(_comparable, (element.max, element.min, element.mean, element.norm)))


def _comparable(number: Number | None) -> Hashable:
    # NaN is not equal to itself, and what holds it is still the same tensor.
    return "nan" if number is not None and math.isnan(number) else number


def file_checksum(folder: Path, name: str) -> str | None:
    """Return a checksum of the elements in a tensor's file; None where there is no such file or it is none of ours.

    A ``.pt`` file is an archive that lists the checksums of its parts; of a ``.npy`` file all is read, of a container
    the tensor alone. Raises MissingCodecError where that is compressed and cannot be read for want of the library.
    """
    contained = split_name(name)
    file = name if contained is None else contained[0]
    if PurePath(file).name != file:
        return None
    path = folder / file
    try:
        if contained is not None:
            tensor = find_tensor(path, contained[1])
            require_memory(path, tensor)
            return f"{zlib.crc32(read_elements(path, tensor, mapped=True).data):08x}"
        if path.suffix == ".npy":
            return f"{zlib.crc32(read_regular(path)):08x}"
        with open_regular(path) as content, zipfile.ZipFile(content) as archive:
            parts = [part.CRC for part in archive.infolist() if part.filename.endswith("/data/0")]
    except MissingCodecError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, DumpError):
        return None
    return f"{parts[0]:08x}" if parts else None
