"""CANN as it is installed: libraries compiled from the sources in ``runtime`` and ``hccl``, once for these sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
#: Named here, where HOME is still the user's: pytester gives each test another.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "simulated_cann"
_RUNTIME = "ascendcl"
#: Libraries that torch_npu loads by these names; all that it asks them for is in the runtime's.
_EMPTY = ("acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel", "atb")
#: Folders that torch_npu asks for, and the file that it reads the version from.
_FOLDERS = ("lib64", "runtime", "compiler", "opp")
_VERSION = ("ascend_toolkit_install.info", "package_name=simulated\nversion=8.5.0\n")
_FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-O1", "-fPIC", "-shared", "-pthread")


def installed() -> Path:
    """Return the folder of CANN, whose libraries are in ``lib64``, compiled before if no process has done so.

    Raises CalledProcessError where gcc finds an error in the sources.
    """
    folder = _CACHE / _digest()
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Without it, a second process would load what the first is still writing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _compile(folder)
            (folder / "complete").touch()
    return folder


def can_compile() -> bool:
    """Return whether there is a compiler of C."""
    return shutil.which("gcc") is not None


def _compile(folder: Path) -> None:
    for each in _FOLDERS:
        (folder / each).mkdir(exist_ok=True)
    (folder / _VERSION[0]).write_text(_VERSION[1])
    folder = folder / "lib64"
    _link(folder, _RUNTIME, *_sources("runtime"))
    # What has sources of its own is linked against the runtime, and so is what has none: a name is found through it.
    _link(folder, "hccl", *_sources("hccl"), runtime=folder)
    # Groups of calls have their functions in a library of their own, which may be the same one.
    shutil.copyfile(folder / "libhccl.so", folder / "libhcomm.so")
    for name in _EMPTY:
        _link(folder, name, runtime=folder)


def _link(folder: Path, name: str, *sources: Path, runtime: Path | None = None) -> None:
    """Compile a library of these sources into the folder, linked against the runtime if its folder is given."""
    against = ["-Wl,--no-as-needed", f"-L{runtime}", f"-l{_RUNTIME}", "-lrt"] if runtime else []
    files = [str(source) for source in sources] or ["-x", "c", os.devnull]
    headers = f"-I{_HERE / 'runtime'}"
    subprocess.run(["gcc", *_FLAGS, headers, "-o", str(folder / f"lib{name}.so"), *files, *against], check=True)


def _digest() -> str:
    found = hashlib.sha256(Path(__file__).read_bytes())
    for folder in ("runtime", "hccl"):
        for path in sorted((_HERE / folder).glob("*.[ch]")):
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _sources(folder: str) -> Iterator[Path]:
    return iter(sorted((_HERE / folder).glob("*.c")))
