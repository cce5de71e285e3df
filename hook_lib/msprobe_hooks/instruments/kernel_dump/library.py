"""The library that dumps kernels: CANN's, by way of ``torch_npu.npu``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

from msprobe_hooks.errors import ConfigError


class KernelLibrary(Protocol):
    """What is used of ``torch_npu.npu``."""

    def synchronize(self) -> None:
        """Wait for what was started."""

    def init_dump(self) -> None:
        """Begin to dump."""

    def set_dump(self, config: str) -> None:
        """Say what to dump, and where."""

    def finalize_dump(self) -> None:
        """Dump no more."""


def kernel_library() -> KernelLibrary:
    """Return the library of this machine.

    Raises ConfigError where torch_npu is not there, cannot be loaded, of which it names the missing library, or is too
    old to dump.
    """
    try:
        found: Any = importlib.import_module("torch_npu").npu
    except ImportError as error:
        raise ConfigError("level", "L2", f"other levels on this machine, as torch_npu dumps kernels: {error}") from None
    for name in ("init_dump", "set_dump", "finalize_dump"):
        if not hasattr(found, name):
            raise ConfigError("level", "L2", f"other levels with this torch_npu, which has no torch_npu.npu.{name}")
    return cast("KernelLibrary", found)


@contextmanager
def dumping(library: KernelLibrary, config: Path) -> Iterator[None]:
    """Have the kernels that run inside dumped, and none that was started before."""
    library.synchronize()
    library.init_dump()
    try:
        library.set_dump(str(config))
        library.synchronize()
        yield
        library.synchronize()
    finally:
        library.finalize_dump()
