"""Files that others made, opened only where they are regular files.

A FIFO in a folder blocks a process that opens it, and a device such as ``/dev/zero`` has no end.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
# A shell hands a pipe over by such a path, as for ``<(command)``. No file in a folder of data has one.
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
# To map a file takes longer than to read so much of it.
_MAPPED_BYTES = 2**20


def open_regular(path: Path | str, buffering: int = -1) -> BinaryIO:
    """Open a file to read its bytes, without a buffer where ``buffering`` is 0.

    Raises OSError, also where the path is a folder, FIFO, device or socket; a pipe of the shell is read.
    """
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            _require_pipe_of_shell(path, mode)
            # A read would return None, and not wait, where the command that writes is slower.
            os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path | str) -> bytes:
    """Return the bytes of a file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def content_of(path: Path | str) -> bytes | mmap.mmap:
    """Return what a file holds, mapped where it is large; raises as `open_regular`."""
    with open_regular(path, buffering=0) as file:
        is_large = os.fstat(file.fileno()).st_size > _MAPPED_BYTES
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_large else file.read()


def require_regular(path: Path | str) -> None:
    """Raise OSError where a path is not a regular file, for libraries that open it by its name."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        raise not_regular(path, mode)


def not_regular(path: Path | str, mode: int) -> OSError:
    """Return the error for a path of such a mode, which is not that of a regular file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _KINDS.get(stat.S_IFMT(mode), "no file")
    return OSError(errno.EINVAL, f"it is {kind}, and only regular files are read", str(path))


def _require_pipe_of_shell(path: Path | str, mode: int) -> None:
    if not (stat.S_ISFIFO(mode) and str(path).startswith(_DESCRIPTORS)):
        raise not_regular(path, mode)
