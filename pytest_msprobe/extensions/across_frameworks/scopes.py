"""Scopes of records: their paths of layers in a model, from ``construct.json`` and ``stack.json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import direction_of, forward_of, is_module_name, shared_name, split_called, split_module
from pytest_msprobe.modes.compare.matching.reordering import intact

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

Path: TypeAlias = tuple[str, ...]

#: The class of the root, of which every outermost layer and call is a part.
TOP = "TopLayer"
_RENUMBERED = "ParallelTransformer"
_FRAME = re.compile(r"File (?P<path>.*?), line \d+, in (?P<function>[^,]+)")
_FRAMEWORK = re.compile(r"(?:site-packages|package)/(?:torch|mindspore)/")
_FORWARD = frozenset({"forward", "backward", "construct"})
_NO_SCOPE = frozenset({"__call__", "construct"})
_OWN_TOOLS = ("msprobe", "mindspeed")


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """One record: its path from the root, and the same with the framework's function that called it, if one did."""

    path: Path
    inner: Path
    state: str


@dataclass(frozen=True, slots=True)
class Scopes:
    """All records of one run by name, in their order, and the class of each layer by its path."""

    records: Mapping[str, ModelPlace]
    classes: Mapping[Path, str]

    def class_of(self, path: Path) -> str:
        """Return what a mapping calls the parent at a path: its class, or its name where it was never called."""
        return self.classes.get(path, path[-1]) if path else TOP


def read_scopes(dump: Dump, translate: Callable[[str], str]) -> Scopes:
    """Place every record of a dump. ``translate`` gives the names of APIs that both runs share.

    Raises DumpError where a file next to the dump is damaged.
    """
    surroundings = dump.surroundings
    records: dict[str, ModelPlace] = {}
    classes: dict[Path, str] = {}
    for name in dump.records:
        if is_module_name(name):
            layer, name_of_class, state = _module(name)
            classes[layer] = name_of_class
            records[name] = ModelPlace(layer, layer, state)
        else:
            records[name] = _api(name, translate(name), surroundings)
    shifts = _shifts(records, classes)
    if shifts:
        # A class is looked up by the path as it is after the shift.
        classes = {_shifted(path, shifts): kind for path, kind in classes.items()}
        records = {
            name: ModelPlace(_shifted(placed.path, shifts), _shifted(placed.inner, shifts), placed.state)
            for name, placed in records.items()
        }
    return Scopes(records, classes)


def _module(name: str) -> tuple[Path, str, str]:
    """Return path, class and state of a module's record."""
    module = split_module(name)
    return tuple(module.path.split(".") if module.path else ()), module.class_name, direction_of(name)


def _api(name: str, translated: str, surroundings: Surroundings) -> ModelPlace:
    own = shared_name(split_called(translated)[0]).rpartition(".")[2]
    # A backward call is where its forward call is.
    parent = intact(surroundings.parents).of_call(forward_of(name)) or ""
    layer = _module(parent)[0] if is_module_name(parent) else ()
    stack = intact(surroundings.stacks).of_call(name) or ()
    function = "" if name.startswith(("Primitive.", "Jit.")) else _caller(stack)
    path = (*layer, own)
    return ModelPlace(path, (*layer, function, own) if function else path, direction_of(name))


def _caller(stack: tuple[str, ...]) -> str:
    """Return the framework's outermost function between a call and the layer's forward, empty where there is none."""
    start = max((i for i, line in enumerate(stack) if "Template" in line), default=-1) + 1
    function = ""
    for line in stack[start:]:
        frame = _FRAME.match(line)
        if frame is None or frame["function"] in _FORWARD or not _FRAMEWORK.search(frame["path"]):
            break
        function = "" if any(tool in frame["path"].lower() for tool in _OWN_TOOLS) else frame["function"]
    return "" if function in _NO_SCOPE else function


def _shifts(records: Mapping[str, ModelPlace], classes: Mapping[Path, str]) -> dict[Path, int]:
    """Return the smallest number below each ``layers`` of a transformer: pipeline stages count their own, or all."""
    roots = {path for path, kind in classes.items() if kind == _RENUMBERED}
    shifts: dict[Path, int] = {}
    if roots:
        for placed in records.values():
            path = placed.path
            for i in range(len(path) - 1):
                if path[i] == "layers" and path[i + 1].isdecimal() and path[:i] in roots:
                    number, at = int(path[i + 1]), path[: i + 1]
                    shifts[at] = min(shifts.get(at, number), number)
    return {path: number for path, number in shifts.items() if number}


def _shifted(path: Path, shifts: Mapping[Path, int]) -> Path:
    words = list(path)
    for i in range(1, len(path)):
        shift = shifts.get(path[:i])
        if shift and words[i].isdecimal():
            words[i] = str(int(words[i]) - shift)
    return tuple(words)
