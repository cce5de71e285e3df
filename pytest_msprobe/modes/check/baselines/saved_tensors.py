"""What became of a record's tensors for a baseline, as an extra of its result."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pytest_msprobe.results.result import DirectionResult

_KEPT = "kept"


@dataclass(frozen=True, slots=True)
class KeptTensors:
    """What became of a record's tensors for a baseline: their file's digest and size in bytes, or why there is none."""

    digest: str = ""
    size: int = 0
    problem: str = ""


def with_kept(result: DirectionResult, kept: KeptTensors) -> DirectionResult:
    """Return a result with its kept tensors."""
    return result.with_extra(_KEPT, msgspec.to_builtins(kept))


def kept_of(result: DirectionResult) -> KeptTensors | None:
    """Return what became of a record's tensors; None where none were to be kept."""
    plain = result.extras.get(_KEPT)
    return None if plain is None else msgspec.convert(plain, KeptTensors)
