"""Limits of storage, and the description of a kept tensor; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from msprobe_hooks.messages import parse_size

#: What is kept where the user names no limits: one piece, the whole folder.
DEFAULT_LIMITS = "1GiB,10GiB"


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """Place of saved pieces, and how many bytes one of them (a case, a record) and the whole folder may take."""

    folder: Path
    case_limit: int
    folder_limit: int


def parse_limits(text: str) -> tuple[int, int]:
    """Read ``500MiB``, the most for one piece, or ``500MiB,20GiB``, that and the most for the whole folder.

    Raises ValueError where these are no sizes.
    """
    sizes = [parse_size(part.strip()) for part in text.split(",")]
    if not 1 <= len(sizes) <= 2 or None in sizes:
        raise ValueError(f"{text!r}: expected a size, or two with a comma, such as 500MiB or {DEFAULT_LIMITS}")
    first, last = sizes[0] or 0, sizes[-1] or 0
    return first, last if len(sizes) == 2 else max(first, parse_limits(DEFAULT_LIMITS)[1])


class StoredTensor(msgspec.Struct, frozen=True):
    """Form of a tensor: dtype (``torch.float32``), shape, strides in elements, and lazy bits of torch."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    is_conj: bool = False
    is_neg: bool = False


class TensorFileError(Exception):
    """A stored tensor cannot be used: the ``problem``, and what to do about it where the file is not at fault."""

    def __init__(self, problem: str, *, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy
