"""The library that dumps kernels, CANN's by way of ``torch_npu.npu``, and the configuration that it is given."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from msprobe_hooks.dump.names import backward_of
from msprobe_hooks.dump.writer import FILE_MODE, write_error
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording.config import API_NAME, OVERFLOW_TASKS, Settings


class KernelLibrary(Protocol):
    """Part of ``torch_npu.npu`` that is used."""

    def synchronize(self) -> None:
        """Wait for what was started."""

    def init_dump(self) -> None:
        """Begin to dump."""

    def set_dump(self, config: str) -> None:
        """Set what to dump, and where."""

    def finalize_dump(self) -> None:
        """Dump no more."""


def kernel_library() -> KernelLibrary:
    """Return the library of this machine.

    Raises ConfigError where torch_npu is not there, cannot be loaded, of which it names the missing library, or is too
    old to dump.
    """
    try:
        npu: Any = importlib.import_module("torch_npu").npu
    except ImportError as error:
        raise ConfigError("level", "L2", f"other levels on this machine, as L2 needs torch_npu: {error}") from None
    for name in ("init_dump", "set_dump", "finalize_dump"):
        if not hasattr(npu, name):
            raise ConfigError("level", "L2", f"other levels with this torch_npu, as it has no torch_npu.npu.{name}")
    return cast("KernelLibrary", npu)


@contextmanager
def dumping(library: KernelLibrary, config: Path) -> Iterator[None]:
    """Dump the kernels that run inside, and none that was started before."""
    library.synchronize()
    library.init_dump()
    try:
        library.set_dump(str(config))
        library.synchronize()
        yield
        library.synchronize()
    finally:
        library.finalize_dump()


_ALLOWED = 'the full name of one record at level L2, as in ["Functional.linear.0.backward"]'


def wanted_record(settings: Settings) -> str:
    """Return the name of the record whose kernels are to be dumped. Raises ConfigError where it is not one."""
    if settings.task in OVERFLOW_TASKS or settings.task == "structure":
        raise ConfigError("task", settings.task, "statistics or tensor at level L2")
    if settings.scope:
        raise ConfigError("scope", list(settings.scope), "not supported at level L2; name the call in list")
    if len(settings.list) != 1 or not API_NAME.fullmatch(settings.list[0]):
        raise ConfigError("list", list(settings.list), _ALLOWED)
    return settings.list[0]


def of_one_call(settings: Settings, forward: str) -> Settings:
    """Return the settings of the recording at level L1 that accompanies it."""
    return replace(settings, level="L1", list=(forward, backward_of(forward)))


def write_kernel_config(folder: Path, rank: int | None) -> Path:
    """Write the configuration that ``torch_npu.npu.set_dump`` takes, byte for byte as msprobe; return where it is.

    Raises RecordingError where it cannot be written.
    """
    path = folder / ("kernel_config.json" if rank is None else f"kernel_config_{rank}.json")
    settings = {"dump_list": [], "dump_path": str(folder), "dump_mode": "all", "dump_op_switch": "on"}
    try:
        path.touch(FILE_MODE)
        path.write_text(json.dumps({"dump": settings}, indent=4))
    except OSError as error:
        raise write_error(path, "written", error) from None
    return path
