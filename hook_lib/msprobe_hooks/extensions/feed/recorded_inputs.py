"""Recorded inputs for feeding: the dump for a step and rank, the calls of each module, and modules' names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Final

from msprobe_hooks.dump.names import MODULE_TYPES, direction_of, is_module_name, split_module
from msprobe_hooks.dump.reader import Dump, open_dump
from msprobe_hooks.dump.recording_paths import find_dumps, home_of, step_rank
from msprobe_hooks.dump.schema import ForwardRecord, tensors_of
from msprobe_hooks.errors import ConfigError, DumpError
from msprobe_hooks.messages import closest, listed

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
        own_path = self._patterns[name].path
        candidates = list(paths)
        return next((path for path in candidates if path.endswith(f".{own_path}")), None) or closest(
            own_path, candidates
        )


def _pattern(name: str) -> _Pattern:
    call = _CALL.search(name)
    number = int(call[1]) if call is not None and call[1].isdecimal() else None
    path = name[: call.start()] if call is not None else name
    kind, _, rest = path.partition(".")
    return _Pattern(unwrapped(rest if kind in MODULE_TYPES and rest else path), number)


def _matches(pattern: _Pattern, path: str, class_name: str) -> bool:
    return fnmatchcase(path, pattern.path) or fnmatchcase(f"{path}.{class_name}", pattern.path)


_LEVELS = ("L0", "mix")


class RecordedInputs:
    """The inputs that one dump recorded, of the modules that are named. Raises ConfigError, DumpError."""

    def __init__(self, path: Path, names: ModuleNames, frameworks: tuple[str, ...]) -> None:
        self.dump = dump = open_dump(path)
        self.home = home_of(path)
        _require_modules(dump, self.home, frameworks)
        self._calls = _calls(dump)
        named = {
            (path, place): name
            for path, calls in self._calls.items()
            for place, name in enumerate(calls)
            if names.meet(path, split_module(name).class_name, number_of(name))
        }
        if named:
            _require_tensors(dump, self.home, next(iter(named.values())))
        self._named = named

    @property
    def paths(self) -> list[str]:
        """The paths of all modules of which calls were recorded."""
        return list(self._calls)

    @property
    def named_paths(self) -> set[str]:
        """The paths of the modules that are fed."""
        return {path for path, _ in self._named}

    def count(self, path: str) -> int:
        """Return how many calls of a module were recorded, named or not."""
        return len(self._calls.get(path, ()))

    def record(self, path: str, number: int) -> ForwardRecord | None:
        """Return the record of the n-th call of a module, None where it is not one that is fed. Raises RecordError."""
        name = self._named.get((path, number))
        return None if name is None else self.dump.forward(name)


class Source:
    """A recording that inputs come from: a folder of steps and ranks, or one ``dump.json``.

    ``step`` and ``rank`` choose the dump whatever step and rank run. Raises DumpError where there is none.
    """

    def __init__(
        self, path: Path, names: ModuleNames, frameworks: tuple[str, ...], step: int | None, rank: int | None
    ) -> None:
        self.path = path
        self._names = names
        self._frameworks = frameworks
        self._step, self._rank = step, rank
        self._dumps = [path] if path.is_file() else find_dumps(path)
        self._opened: tuple[Path, RecordedInputs] | None = None

    @cached_property
    def first(self) -> RecordedInputs:
        """The inputs of the first dump."""
        dumps = [dump for dump in self._dumps if self._step in (None, step_rank(dump).step)]
        return self._open(dumps[0] if dumps else self._dumps[0])

    def at(self, step: int, rank: int | None) -> RecordedInputs | None:
        """Return the inputs for a step and rank of the running program, None where the recording lacks them."""
        dump = self._of_rank(self._of_step(step), rank)
        return None if dump is None else self._open(dump)

    def _of_step(self, step: int) -> list[Path]:
        # A dump that was named by itself is the one that is meant.
        if len(self._dumps) == 1 and (self._dumps[0] == self.path or self._is_below_step):
            return self._dumps
        selected_step = step if self._step is None else self._step
        return [dump for dump in self._dumps if step_rank(dump).step in (None, selected_step)]

    @property
    def _is_below_step(self) -> bool:
        return step_rank(self.path).step is not None

    def _of_rank(self, dumps: list[Path], rank: int | None) -> Path | None:
        selected_rank = rank if self._rank is None else self._rank
        for dump in dumps:
            if step_rank(dump).rank == selected_rank:
                return dump
        # One process is the same with and without a number.
        alone = len(dumps) == 1 and self._rank is None and (selected_rank or 0) == (step_rank(dumps[0]).rank or 0)
        is_whole = len(dumps) == 1 and self._rank is None and rank is None
        return dumps[0] if alone or is_whole else None

    def described(self) -> str:
        """Return the steps and ranks that the recording has, in words."""
        places = [step_rank(dump) for dump in self._dumps]
        steps = sorted({place.step for place in places if place.step is not None})
        ranks = sorted({place.rank for place in places if place.rank is not None})
        words = [
            f"{name} {listed(map(str, numbers))}" for name, numbers in (("step", steps), ("rank", ranks)) if numbers
        ]
        return " and ".join(words) or "one dump"

    def _open(self, path: Path) -> RecordedInputs:
        if self._opened is None or self._opened[0] != path:
            self._opened = (path, RecordedInputs(path, self._names, self._frameworks))
        return self._opened[1]


def _calls(dump: Dump) -> dict[str, list[str]]:
    """Return the forward records of each module in the order of its calls, by its path without wrappers.

    A wrapper has the path of what it wraps: the innermost is the module. Calls that were made again by activation
    checkpointing are left out.
    """
    by_path: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in dump.records:
        if is_module_name(name) and direction_of(name) == "forward" and not dump.is_recomputed(name):
            path = split_module(name).path
            by_path[unwrapped(path)][path].append(name)
    calls = {
        path: sorted(wrapped[max(wrapped, key=lambda raw: raw.count("."))], key=number_of)
        for path, wrapped in by_path.items()
    }
    # A list of one model, whose index says nothing: the model itself is not recorded.
    is_list_of_one = bool(calls) and all(path.startswith("0.") for path in calls)
    return {path.removeprefix("0."): names for path, names in calls.items()} if is_list_of_one else calls


def number_of(name: str) -> int:
    """Return the number of a module's call in its record's name."""
    last = name.rpartition(".")[2]
    return int(last) if last.isdecimal() else 0


def _require_modules(dump: Dump, home: Path, frameworks: tuple[str, ...]) -> None:
    if dump.framework not in frameworks:
        raise ConfigError(
            "framework",
            frameworks[0],
            "",
            problem=f"{home}: a dump of {dump.framework}, which a program of "
            f"{frameworks[0]} is not fed from; record the inputs with {frameworks[0]}",
        )
    if dump.level not in _LEVELS:
        raise DumpError(
            f"{home}: recorded at level {dump.level}, which has no inputs of modules; record with level L0 or mix "
            "and task tensor"
        )
    if dump.task == "structure":
        raise DumpError(f"{home}: recorded with task structure, which has no values; record with task tensor")


def _require_tensors(dump: Dump, home: Path, name: str) -> None:
    record = dump.forward(name)
    tensors = [*tensors_of(record.args), *tensors_of(record.kwargs)]
    if tensors and all(tensor.data_name is None for tensor in tensors):
        kind = "checksums" if tensors[0].checksum is not None else "statistics"
        raise DumpError(
            f"{home}: recorded with task {dump.task}, which has {kind} of the inputs of {name} and not their values; "
            "record with task tensor"
        )
