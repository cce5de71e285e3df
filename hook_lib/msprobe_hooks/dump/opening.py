"""A dump of any kind, opened by the file that it goes by."""

from __future__ import annotations

from pathlib import Path

from msprobe_hooks.dump.paths.static_graph import is_converted_file, is_iteration_file
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions import first


def open_dump(path: Path) -> Dump:
    """Read a ``dump.json``, or a dump of another form that an extension reads.

    Args:
        path: The file by which the dump goes, as `find_dumps` returns it.

    Returns:
        The dump, whose records are decoded when they are read.

    Raises:
        DumpError: The file cannot be used; the text names it, the problem and the remedy.
    """
    dump: Dump | None = first("open_dump", path)
    if dump is not None:
        return dump
    if is_converted_file(path) or is_iteration_file(path):
        raise DumpError(f"{path}: a kernel's file, which no installed extension reads; pass the folder of a dump.json")
    return read_dump(path)
