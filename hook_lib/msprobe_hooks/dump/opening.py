"""A dump of any kind, opened by the file that it goes by."""

from __future__ import annotations

from pathlib import Path

from msprobe_hooks.dump.paths.static_graph import is_converted_file, is_iteration_file
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.extensions.kernel_dump.converted.reader import read_tree
from msprobe_hooks.extensions.mindspore.static_graph.reader import read_iteration


def open_dump(path: Path) -> Dump:
    """Read a ``dump.json``, what MindSpore dumped of an iteration of a static graph, or converted kernel files.

    Args:
        path: The file by which the dump goes, as `find_dumps` returns it.

    Returns:
        The dump, whose records are decoded when they are read.

    Raises:
        DumpError: The file cannot be used; the text names it, the problem and the remedy.
    """
    if is_converted_file(path):
        return read_tree(path)
    return read_iteration(path) if is_iteration_file(path) else read_dump(path)
