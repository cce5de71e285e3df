"""Tensors as facts: their statistics, and a digest of their bytes."""

from __future__ import annotations

import hashlib

from msprobe_hooks.instruments.environment.started import TensorFact
from msprobe_hooks.recording.statistics import Number, Statistics


def fact(known: Statistics, dtype: str, shape: tuple[int, ...], content: bytes | memoryview) -> TensorFact:
    """Return what is told of a tensor whose contiguous bytes are ``content``."""
    maximum, minimum, mean, norm = map(_float, (known.max, known.min, known.mean, known.norm))
    return TensorFact(maximum, minimum, mean, norm, dtype, shape, digest(content))


def digest(content: bytes | memoryview) -> str:
    """Return the BLAKE2b digest of bytes, 128 bits as hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _float(value: Number | None) -> float | None:
    return None if value is None else float(value)
