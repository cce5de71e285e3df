"""Pairs of facts and of random calls of two starts, which are opened here, and how severe each difference is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from msprobe_hooks.errors import StartError
from msprobe_hooks.extensions.environment.start_file import RandomCalls, rank_files, read_started
from msprobe_hooks.messages import numbered
from msprobe_standards.decoding import decode_yaml
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.environment.msprobe_pack import (
    SECTIONS,
    STEPPED,
    Facts,
    Value,
    facts_of,
    read_pack,
    tensors,
)

Level = Literal["error", "warning"]

# As msprobe: a frame is the same where file name, function and line of code agree so much on average.
_SAME = 0.8
_FRAME = re.compile(r"File (?P<file>.*?), line (?P<line>\d+), in (?P<function>[^,]*), ?(?P<code>.*)", re.DOTALL)

# As msprobe: names that are more alike than this are taken for one.
_ALIKE = 0.8
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"[-+]?[\d.]+(?:e[-+]?\d+)?", re.IGNORECASE)
# What a run writes to, also where its value is a folder's name without a slash.
_OUTPUT = re.compile(
    r"(?:\w*_)?(?:out|output|outputs|save|saves|log|logs|logging|tensorboard|tb|dump|results?|work|ckpt|checkpoints?"
    r"|profile|profiler|trace)_?(?:dir|directory|folder|path|root)|o|out|output|outputs|save"
)


class Variable(msgspec.Struct, frozen=True):
    """An environment variable under the names that it has on each kind of card."""

    names: tuple[str, ...]
    default: str
    level: Level


class Levels(msgspec.Struct, frozen=True):
    """The table; ``aliases`` are rows of names of one hyperparameter, ``left_out`` names that differ between starts."""

    aliases: tuple[tuple[str, ...], ...]
    left_out: frozenset[str]
    variables: tuple[Variable, ...]
    packages: frozenset[str]
    machine: frozenset[str]

    def canonical(self, name: str) -> str:
        """Return what a hyperparameter is called whatever a framework calls it."""
        return next((row[0] for row in self.aliases if name in row), name)


@cache
def levels() -> Levels:
    """Return the table."""
    plain: Any = decode_yaml(Path(__file__).with_name("levels.yaml").read_bytes())
    return msgspec.convert(plain, Levels)


def pair_random(target: Facts, golden: Facts) -> Iterator[tuple[str, RandomCalls | None, RandomCalls | None]]:
    """Yield a name and the calls of both sides, None where one did not make them.

    Only functions count that both sides watched. Equal stacks meet first, then those that are as alike as msprobe asks.
    """
    ours, theirs = target.random or {}, golden.random or {}
    watched = target.watched & golden.watched
    names: list[str] = []
    matched: list[tuple[RandomCalls | None, RandomCalls | None]] = []
    for function in dict.fromkeys([*ours, *theirs]):
        if function not in watched:
            continue
        for mine, its in _matched(ours.get(function, []), theirs.get(function, [])):
            one = mine or its
            assert one is not None
            names.append(f"{function}@{_place(one)}")
            matched.append((mine, its))
    for name, (mine, its) in zip(numbered(names), matched, strict=True):
        yield name, mine, its


def _matched(
    ours: list[RandomCalls], theirs: list[RandomCalls]
) -> Iterator[tuple[RandomCalls | None, RandomCalls | None]]:
    partners: dict[int, RandomCalls] = {}
    left = list(theirs)
    for alike in (_are_equal, _are_alike):
        for place, mine in enumerate(ours):
            its = next((one for one in left if alike(mine, one)), None) if place not in partners else None
            if its is not None:
                partners[place] = its
                left.remove(its)
    yield from ((mine, partners.get(place)) for place, mine in enumerate(ours))
    yield from ((None, its) for its in left)


def _are_equal(mine: RandomCalls, its: RandomCalls) -> bool:
    return mine.stack == its.stack


def _are_alike(mine: RandomCalls, its: RandomCalls) -> bool:
    return len(mine.stack) == len(its.stack) and all(map(_is_same_frame, reversed(mine.stack), reversed(its.stack)))


@lru_cache(maxsize=1 << 14)
def _is_same_frame(mine: str, its: str) -> bool:
    ours, theirs = _FRAME.fullmatch(mine), _FRAME.fullmatch(its)
    if ours is None or theirs is None:
        return mine == its
    names = [PurePosixPath(frame["file"]).name for frame in (ours, theirs)]
    share = (names[0] == names[1]) + (ours["function"] == theirs["function"])
    return (share + SequenceMatcher(None, ours["code"], theirs["code"]).ratio()) / 3 >= _SAME


def _place(calls: RandomCalls) -> str:
    """Return file and line of the innermost frame."""
    match = _FRAME.fullmatch(calls.stack[-1]) if calls.stack else None
    return f"{PurePosixPath(match['file']).name}:{match['line']}" if match else "unknown"


@dataclass(frozen=True, slots=True)
class Pair:
    """One fact on both sides, None where a side lacks it; ``level`` is what a difference weighs.

    ``matched`` says how names that differ found each other: ``mapping`` or ``similarity:0.9``.
    """

    section: str
    name: str
    target: Value | None
    golden: Value | None
    level: Level
    golden_name: str = ""
    matched: str = "name"

    @property
    def item_name(self) -> str:
        """Return what the item is called."""
        return f"{self.section}/{self.name}"


def pairs_of(target: Facts, golden: Facts) -> list[Pair]:
    """Return what both sides looked at, by section and in the target's order."""
    both = target.known & golden.known
    return [pair for section in SECTIONS if section in both for pair in _PAIRING[section](section, target, golden)]


def _random(section: str, target: Facts, golden: Facts) -> Iterator[Pair]:
    for name, ours, theirs in pair_random(target, golden):
        yield Pair(section, name, ours, theirs, "error")


def _by_name(section: str, target: Facts, golden: Facts) -> Iterator[Pair]:
    ours, theirs = target.sections[section], golden.sections[section]
    if section in STEPPED:
        ours, theirs = _comparable(ours, theirs, target.is_whole and golden.is_whole)
    for name in _union(ours, theirs):
        # Another torch has other switches.
        is_unknown = section == "switches" and not (name in ours and name in theirs)
        level = "warning" if is_unknown else _level(section, name)
        yield Pair(section, name, ours.get(name), theirs.get(name), level)


def _comparable(
    ours: Mapping[str, Value], theirs: Mapping[str, Value], are_whole: bool
) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """Return the facts of the steps that both sides have; tensors alone where one side has nothing else."""
    steps = {name.partition("/")[0] for name in ours} & {name.partition("/")[0] for name in theirs}
    names = [
        {name for name in (facts if are_whole else tensors(facts)) if name.partition("/")[0] in steps}
        for facts in (ours, theirs)
    ]
    return {name: ours[name] for name in ours if name in names[0]}, {
        name: theirs[name] for name in theirs if name in names[1]
    }


def _level(section: str, name: str) -> Level:
    table = levels()
    if section == "packages":
        return "error" if name in table.packages else "warning"
    return "warning" if section == "switches" and name in table.machine else "error"


def _variables(section: str, target: Facts, golden: Facts) -> Iterator[Pair]:
    ours, theirs = dict(target.sections[section]), dict(golden.sections[section])
    for row in levels().variables:
        mine, its = (_first(row.names, side) for side in (ours, theirs))
        if mine or its:
            name, golden_name = mine or its, its or mine
            matched = "name" if name == golden_name else "mapping"
            values = ours.pop(name, row.default), theirs.pop(golden_name, row.default)
            yield Pair(section, name, *values, row.level, golden_name, matched)
    for name in _union(ours, theirs):
        yield Pair(section, name, ours.get(name), theirs.get(name), "warning", name)


def _first(names: tuple[str, ...], facts: Mapping[str, Value]) -> str:
    return next((name for name in names if name in facts), "")


def _settings(section: str, target: Facts, golden: Facts) -> Iterator[Pair]:
    """Yield hyperparameters under their whole names, under the last part of these, by alias, and by likeness."""
    ours, theirs = (_compared_settings(side.sections[section]) for side in (target, golden))
    names = [*ours]
    pairs: dict[str, Pair] = {}

    def take(name: str, golden_name: str, matched: str) -> None:
        level: Level = (
            "warning" if matched.startswith("similarity") else _setting_level(name, ours, theirs, golden_name)
        )
        pairs[name] = Pair(section, name, ours.pop(name), theirs.pop(golden_name), level, golden_name, matched)

    for name in [name for name in ours if name in theirs]:
        take(name, name, "name")
    for spelling, matched in ((_spelled, "name"), (lambda name: levels().canonical(_spelled(name)), "mapping")):
        for name, golden_name in _same(list(ours), list(theirs), spelling):
            take(name, golden_name, matched)
    for name in list(ours):
        likeness, golden_name = max(((_likeness(name, other), other) for other in theirs), default=(0.0, ""))
        if likeness > _ALIKE:
            take(name, golden_name, f"similarity:{likeness:.3g}")
    for name in names:
        yield pairs[name] if name in pairs else Pair(section, name, ours[name], None, "warning")
    for name, value in theirs.items():
        yield Pair(section, name, None, value, "warning", name)


def _compared_settings(facts: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in facts.items() if _spelled(name) not in levels().left_out}


def _setting_level(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], golden_name: str) -> Level:
    """Return what a difference weighs.

    A file may be in another place on each machine; what comes out of it, the first batches and weights show.
    """
    values = ours[name], theirs[golden_name]
    is_place = all("/" in str(value) for value in values)
    is_output = _OUTPUT.fullmatch(_spelled(name)) is not None and all(map(_may_be_folder, values))
    return "warning" if is_place or is_output or name.startswith("argument ") else "error"


def _may_be_folder(value: Any) -> bool:
    return isinstance(value, str) and not _NUMBER.fullmatch(value) and value.lower() not in ("true", "false", "none")


def _same(ours: list[str], theirs: list[str], spelling: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield names that are spelled alike, where no other of their side is."""
    mine, its = (_by_spelling(names, spelling) for names in (ours, theirs))
    for spelled, names in mine.items():
        others = its.get(spelled, [])
        if len(names) == len(others) == 1:
            yield names[0], others[0]


def _by_spelling(names: list[str], spelling: Callable[[str], str]) -> dict[str, list[str]]:
    names_by_spelling: dict[str, list[str]] = {}
    for name in names:
        names_by_spelling.setdefault(spelling(name), []).append(name)
    return names_by_spelling


def _spelled(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_").lower()


def _likeness(name: str, other: str) -> float:
    """Return how alike two names are, from 0 to 1: those that differ in a number are of two things."""
    mine, its = _spelled(name), _spelled(other)
    if _DIGITS.findall(mine) != _DIGITS.findall(its):
        return 0.0
    return SequenceMatcher(None, mine, its).ratio()


def _union(ours: Mapping[str, Value], theirs: Mapping[str, Value]) -> list[str]:
    return list(dict.fromkeys([*ours, *theirs]))


_PAIRING: dict[str, Callable[[str, Facts, Facts], Iterator[Pair]]] = {
    **dict.fromkeys(SECTIONS, _by_name),
    "hyperparameters": _settings,
    "arguments": _settings,
    "variables": _variables,
    "random": _random,
}


def start_files(folder: Path) -> list[Path]:
    """Return the files of a folder, by rank. Raises StartError where there are none."""
    files = rank_files(folder)
    if not files:
        raise StartError(f"{folder}: no rank<n>.json; name the folder that msprobe_hooks.write_environment wrote")
    return files


def read_starts(path: Path) -> dict[int, Facts]:
    """Return the facts of each rank in a file. Raises StartError."""
    if path.suffix == ".zip":
        return read_pack(path)
    facts = facts_of(read_started(path))
    return {facts.rank: facts}


def files_of(path: Path) -> list[Path]:
    """Return the files that a start consists of. Raises StartError where a folder has none."""
    return start_files(path) if path.is_dir() else [path]


def read_all(path: Path) -> Mapping[int, Facts]:
    """Return the facts of each rank in a file or a folder. Raises StartError."""
    facts: dict[int, Facts] = {}
    for file in files_of(path):
        facts |= read_starts(file)
    return facts


@dataclass(frozen=True, slots=True)
class Opened:
    """The pairs of each file by rank, and what is odd about either side, in sentences."""

    files: Mapping[Path, Mapping[int, list[Pair]]]
    notes: list[str]

    def named(self, path: Path) -> Iterator[tuple[str, Pair]]:
        """Yield the pairs of a file with what their items' names begin with: the rank where there are several."""
        ranks = self.files[path]
        for rank, pairs in ranks.items():
            prefix = f"rank{rank}/" if len(ranks) > 1 else ""
            yield from ((prefix, pair) for pair in pairs)

    def ranked(self) -> list[tuple[int, Pair]]:
        """Return all pairs with their ranks."""
        return [(rank, pair) for ranks in self.files.values() for rank, pairs in ranks.items() for pair in pairs]


def open_starts(targets: Mapping[Path, Mapping[int, Facts]], golden: Path) -> Opened:
    """Pair the facts of each rank with those of the same rank of the golden environment.

    Raises OptionError where that has no such rank or nothing in common, StartError for unusable files.
    """
    goldens = read_all(golden)
    files: dict[Path, dict[int, list[Pair]]] = {}
    notes: list[str] = []
    for path, ranks in targets.items():
        for rank, target in ranks.items():
            other = goldens.get(rank)
            if other is None:
                have = ", ".join(map(str, goldens))
                raise OptionError(
                    f"{golden}: no rank {rank}, which {path} has; it has ranks {have}", remedy="name one with this rank"
                )
            files.setdefault(path, {})[rank] = pairs_of(target, other)
            notes += [f"rank {rank}: {problem}" for problem in target.problems]
            notes += [f"golden rank {rank}: {problem}" for problem in other.problems]
            notes += list(_one_sided(rank, target, other))
    target_ranks = {rank for ranks in targets.values() for rank in ranks}
    notes += [f"golden rank {rank}: the target has no such rank" for rank in goldens if rank not in target_ranks]
    if not any(pairs for ranks in files.values() for pairs in ranks.values()):
        raise OptionError(f"{golden}: no fact in common with the target", remedy="write both in the same way")
    return Opened(files, notes)


def _one_sided(rank: int, target: Facts, golden: Facts) -> Iterator[str]:
    for side, one, other in (("target", target, golden), ("golden environment", golden, target)):
        only = sorted(one.known - other.known)
        if only:
            yield f"rank {rank}: not compared, only the {side} has them: {', '.join(only)}"
