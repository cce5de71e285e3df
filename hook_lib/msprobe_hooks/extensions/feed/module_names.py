"""Which modules are fed: a module's path without what wrappers add to it, and the names that a user gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from msprobe_hooks.dump.names import MODULE_TYPES
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.messages import closest

# Attributes by which FSDP, activation checkpointing, torch.compile and DeepSpeed hold the module that they wrap.
_WRAPPED: Final = frozenset(
    {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "_forward_module", "_fpw_module"}
)
# The attribute of DistributedDataParallel and of Megatron's wrappers, which are around a whole model.
_WHOLE: Final = "module"
_CALL = re.compile(r"\.forward\.(\d+|\*)$")


def unwrapped(path: str) -> str:
    """Return a module's path as it is without wrappers: ``layers.3`` of ``module._fsdp_wrapped_module.layers.3``.

    The index of a model in a list stays in front.
    """
    words = [word for word in path.split(".") if word not in _WRAPPED]
    start = 1 if len(words) > 1 and words[0].isdecimal() and words[1] == _WHOLE else 0
    end = start
    while end < len(words) and words[end] == _WHOLE:
        end += 1
    return ".".join(words[:start] + words[end:])


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One name: of modules by their path, ``*`` for anything, with a call's number where it names one."""

    path: str
    number: int | None


class ModuleNames:
    """The modules that a user named: ``layers.3``, ``layers.*``, or as records are called, with or without a call.

    Raises ConfigError where there is no name, or one is empty or no text.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if isinstance(names, str) or not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise ConfigError("modules", names, "a list of names of modules, such as ['layers.3', 'layers.4.*']")
        self._patterns = {name: _pattern(name) for name in names}
        self._met = set[str]()
        self._run = set[str]()

    def name(self, path: str, class_name: str) -> bool:
        """Return whether a module is named, by its path without wrappers and its class."""
        return any(_matches(pattern, path, class_name) for pattern in self._patterns.values())

    def meet(self, path: str, class_name: str, number: int) -> bool:
        """Return whether a recorded call is named, and remember which names were met."""
        met = self._of_call(path, class_name, number)
        self._met.update(met)
        return bool(met)

    def note_run(self, path: str, class_name: str, number: int) -> None:
        """Remember that a recorded call ran."""
        self._run.update(self._of_call(path, class_name, number))

    @property
    def unmet(self) -> list[str]:
        """The names that no recorded call had, as they were given."""
        return [name for name in self._patterns if name not in self._met]

    @property
    def calls_not_run(self) -> list[str]:
        """The names of single calls that were recorded and did not run, as they were given."""
        numbered = (name for name, pattern in self._patterns.items() if pattern.number is not None)
        return [name for name in numbered if name in self._met and name not in self._run]

    def _of_call(self, path: str, class_name: str, number: int) -> list[str]:
        return [
            name
            for name, pattern in self._patterns.items()
            if pattern.number in (None, number) and _matches(pattern, path, class_name)
        ]

    def closest(self, name: str, paths: Iterable[str]) -> str | None:
        """Return the path that a name was probably meant as: one that ends with it, else the most alike."""
        wanted = self._patterns[name].path
        known = list(paths)
        return next((path for path in known if path.endswith(f".{wanted}")), None) or closest(wanted, known)


def _pattern(name: str) -> _Pattern:
    call = _CALL.search(name)
    number = int(call[1]) if call is not None and call[1].isdecimal() else None
    path = name[: call.start()] if call is not None else name
    kind, _, rest = path.partition(".")
    return _Pattern(unwrapped(rest if kind in MODULE_TYPES and rest else path), number)


def _matches(pattern: _Pattern, path: str, class_name: str) -> bool:
    return fnmatchcase(path, pattern.path) or fnmatchcase(f"{path}.{class_name}", pattern.path)
