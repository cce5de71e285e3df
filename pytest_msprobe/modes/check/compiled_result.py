"""What was compiled of a call, as a part of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_COMPILED = "compiled"


class Compiled(msgspec.Struct, frozen=True):
    """A call compiled by a backend; the fields are those of `devices.compiled.Compilation`."""

    backend: str
    graphs: int
    breaks: tuple[str, ...] = ()
    kernels: int | None = None
    seconds: float = 0.0

    @property
    def left_eager(self) -> str:
        """Why a verdict says little of the compiler: it compiled nothing; empty where it did."""
        if self.breaks and not self.kernels:
            return f"{self.backend} compiled nothing of it: {'; '.join(self.breaks)}"
        return f"{self.backend} only calls the eager kernel" if self.kernels == 0 else ""


def with_compiled(result: DirectionResult, compiled: Compiled) -> DirectionResult:
    """Return a result with what was compiled."""
    return result.with_extra(_COMPILED, msgspec.to_builtins(compiled))


def compiled_of(extras: Mapping[str, Any]) -> Compiled | None:
    """Return what the extras of a result say of compiling."""
    return decode_extra(extras, _COMPILED, Compiled)
