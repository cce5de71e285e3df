"""In which module's call each record was made, where ``construct.json`` says it wrongly or not at all.

Backward hooks do not always run in the order of the modules, so what a file says of a backward call is checked
against what it says of the forward call; calls made again by activation checkpointing belong to the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msprobe_hooks.dump.names import backward_of, direction_of, forward_of, is_module_name, split_module

#: Deeper than this no model is nested; what a file nests deeper is put at the top.
MAX_DEPTH = 400


def resolve_parents(written: Mapping[str, str | None], is_recomputed: Callable[[str], bool]) -> dict[str, str | None]:
    """Return the parent of each name, None at the top; a parent that has no entry is one at the top.

    No name is its own ancestor, and none has more than `MAX_DEPTH` of them: what closes a circle is put at the top.
    """
    parents: dict[str, str | None] = {}
    repairs = _Repairs(written, is_recomputed)
    for name in written:
        parent = repairs.parent_of(name)
        if parent is not None:
            # Where only a call inside of it names a module, it began no later than that call.
            parents.setdefault(parent, None)
        parents[name] = parent
    _cut_circles(parents)
    return parents


class _Repairs:
    def __init__(self, written: Mapping[str, str | None], is_recomputed: Callable[[str], bool]) -> None:
        self._written = written
        self._is_recomputed = is_recomputed
        self._last_forward: dict[str, str] = {}

    def parent_of(self, name: str) -> str | None:
        """Return the parent of a name; names are asked for in their order."""
        parent = self._written[name] or None
        direction = direction_of(name)
        if direction == "backward" and (parent is None or _is_elsewhere(name, parent)):
            return self._beside_forward(name) or parent
        if direction == "forward" and (parent is None or direction_of(parent) == "forward"):
            if self._is_recomputed(name):
                return self._in_backward(name, parent)
            if is_module_name(name):
                self._last_forward[split_module(name).path] = name
        return parent

    def _beside_forward(self, name: str) -> str | None:
        """Return the backward call of the module in which the forward call was made, where it was recorded."""
        twin = self._written.get(forward_of(name))
        around = backward_of(twin) if twin else None
        return around if around in self._written and around != name else None

    def _in_backward(self, name: str, parent: str | None) -> str | None:
        """Return the backward call during which a forward call was made again."""
        if parent is not None:
            around = backward_of(parent)
            return around if around in self._written else parent
        if not is_module_name(name):
            return None
        path = split_module(name).path
        while path:
            path = path.rpartition(".")[0]
            # What runs backward is what ran forward last.
            around = backward_of(self._last_forward.get(path, ""))
            if around in self._written:
                return around
        return None


def _is_elsewhere(name: str, parent: str) -> bool:
    """Return whether a module's backward call is said to lie in one that is not around the module."""
    if not (is_module_name(name) and is_module_name(parent)):
        return False
    return not split_module(name).path.startswith(f"{split_module(parent).path}.")


def _cut_circles(parents: dict[str, str | None]) -> None:
    depths: dict[str, int] = {}
    for start in parents:
        branch: dict[str, None] = {}
        name: str | None = start
        while name is not None and name not in depths:
            if name in branch:
                # The way up has come back to itself.
                parents[name] = None
                break
            branch[name] = None
            name = parents[name]
        for name in reversed(branch):
            above = parents[name]
            depth = 0 if above is None else depths.get(above, 0) + 1
            if depth > MAX_DEPTH:
                parents[name], depth = None, 0
            depths[name] = depth
