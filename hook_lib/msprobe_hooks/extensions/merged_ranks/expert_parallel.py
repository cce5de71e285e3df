"""Experts that ranks hold, under the numbers that they have in the whole model.

Each rank counts its experts from 0 unless the training numbered them through, and calls of an API with those in its
experts, of which it makes as many as tokens chose them. Renamed, a call outside of experts has one name on all ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import msgspec

from msprobe_hooks.dump.call_context import KnownSurroundings, Surroundings, Table, modules_around
from msprobe_hooks.dump.names import forward_of, is_distributed, is_module_name, split_called, split_module
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.extensions.merged_ranks.pipeline_parallel import numbered_part

#: What the attributes that hold a layer's experts are called.
_EXPERTS: Final = frozenset({"experts", "local_experts"})


@dataclass(frozen=True)
class RenamedDump(Dump):
    """A dump whose records have other names than in its file."""

    own_surroundings: KnownSurroundings

    @property
    def surroundings(self) -> Surroundings:
        """The call context under the names of the records."""
        return self.own_surroundings


@dataclass(slots=True)
class _Rank:
    """One rank while it is renamed: its names in order, and the expert that each is in, empty for none."""

    dump: Dump
    surroundings: Surroundings
    group: int
    names: list[str] = field(default_factory=list)
    experts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parents = self.surroundings.parents.entries
        self.names = [*{**self.dump.records, **parents}]
        self.experts = {name: _expert_around(name, parents) for name in self.names}

    def counted(self) -> Iterator[tuple[str, str, str]]:
        """Yield the forward name of each call of an API once, what it called, and its expert."""
        forwards = dict.fromkeys(forward_of(name) for name in self.names if _is_call(name))
        for name in forwards:
            yield name, split_called(name)[0], self.experts.get(name, "")


def number_experts(dumps: Sequence[Dump], groups: Sequence[int]) -> tuple[list[Dump], Dump]:
    """Return the dumps of a stage's ranks with experts numbered through, and one with the records of all.

    ``groups`` is the place of each rank among those that the experts are spread over. In the last dump, the records
    within experts of the others follow the call that they follow on their rank; bodies are those of the first rank. It
    lacks the calls by which a module around experts sends tokens to these, as no process does that has all of them.
    """
    ranks = [_Rank(dump, dump.surroundings, group) for dump, group in zip(dumps, groups, strict=True)]
    first = _first_experts(ranks)
    renamed = [_renamed(rank, first, calls) for rank, calls in zip(ranks, _call_numbers(ranks, first), strict=True)]
    inside = [{new for new in dump.records if _expert_around(new, _parents(dump))} for dump in renamed]
    records = {name: dump.records[name] for dump in renamed for name in dump.records}
    parents = {name: parent for dump in reversed(renamed) for name, parent in _parents(dump).items()}
    dispatching = {path for name in records if is_module_name(name) for path in _around_experts(name)}
    left_out = {name for name in {**records, **parents} if _is_made_in(name, dispatching, parents)}
    order = [name for name in _in_one_order(renamed, inside) if name not in left_out]
    surroundings = KnownSurroundings(
        dumps[0].path.parent,
        Table({name: parent for name, parent in parents.items() if name not in left_out}),
        Table({name: stack for dump in reversed(renamed) for name, stack in dump.surroundings.stacks.entries.items()}),
        {name: step for dump in reversed(renamed) for name, step in dump.surroundings.micro_steps.items()},
    )
    return [*renamed], _with_records(dumps[0], {name: records[name] for name in order}, surroundings)


def _parents(dump: Dump) -> Mapping[str, str | None]:
    return dump.surroundings.parents.entries


def _with_records(dump: Dump, records: Mapping[str, msgspec.Raw], surroundings: KnownSurroundings) -> RenamedDump:
    rest = {part.name: getattr(dump, part.name) for part in fields(Dump) if part.name != "records"}
    return RenamedDump(**rest, records=records, own_surroundings=surroundings)


def _expert_around(name: str, parents: Mapping[str, str | None]) -> str:
    """Return the path of the expert that a record is in, or that it is of; empty where it is in none."""
    around = modules_around(name, lambda record: parents.get(record) or parents.get(forward_of(record)))
    for module in (name, *around):
        part = numbered_part(split_module(module).path, _EXPERTS) if is_module_name(module) else None
        if part is not None:
            return f"{part[0]}.{part[1]}"
    return ""


def _around_experts(module: str) -> Iterator[str]:
    """Yield the paths of the modules around the experts that a module is one of, or is in, from the layer's on."""
    path = split_module(module).path
    words = path.split(".")
    first = next((i for i, word in enumerate(words) if word in _EXPERTS), None)
    if first is None:
        return
    yield ".".join(words[:first])
    part = numbered_part(path, _EXPERTS)
    if part is not None:
        yield from (".".join(words[: first + 1]), part[0])


def _is_made_in(name: str, paths: Collection[str], parents: Mapping[str, str | None]) -> bool:
    """Return whether a call of an API was made in a module of one of some paths, and not in one within it."""
    parent = None if is_module_name(name) else parents.get(name) or parents.get(forward_of(name))
    return parent is not None and split_module(parent).path in paths


def _is_call(name: str) -> bool:
    return not (is_module_name(name) or is_distributed(name)) and split_called(name)[1].count(".") == 2


def _first_experts(ranks: Sequence[_Rank]) -> Mapping[tuple[int, str], int]:
    """Return the number that the first expert of each group has in the model, by group and path of the experts."""
    numbers = defaultdict[str, dict[int, set[int]]](lambda: defaultdict(set))
    for rank in ranks:
        for expert in {*rank.experts.values()} - {""}:
            path, _, number = expert.rpartition(".")
            numbers[path][rank.group].add(int(number))
    first: dict[tuple[int, str], int] = {}
    for path, groups in numbers.items():
        if sum(map(len, groups.values())) == len(set[int]().union(*groups.values())):
            # No number is twice: the training numbered them through.
            continue
        count = 1 + max(max(own) for own in groups.values())
        first |= {(group, path): group * count for group in groups}
    return first


def _numbered_through(expert: str, group: int, first: Mapping[tuple[int, str], int]) -> str:
    path, _, number = expert.rpartition(".")
    return f"{path}.{int(number) + first.get((group, path), 0)}"


def _call_numbers(ranks: Sequence[_Rank], first: Mapping[tuple[int, str], int]) -> list[dict[str, int]]:
    """Return by rank the number of each call of an API: those outside of experts first, those of each expert then."""
    numbers: list[dict[str, int]] = []
    places: list[dict[str, tuple[str, str]]] = []
    most = defaultdict[str, Counter[str]](Counter)
    for rank in ranks:
        counts = Counter[tuple[str, str]]()
        numbers.append({})
        places.append({})
        for name, called, own in rank.counted():
            expert = _numbered_through(own, rank.group, first) if own else ""
            numbers[-1][name], places[-1][name] = counts[called, expert], (called, expert)
            counts[called, expert] += 1
            most[called][expert] = max(most[called][expert], counts[called, expert])
    starts: dict[tuple[str, str], int] = {}
    for called, by_expert in most.items():
        start = 0
        for expert in sorted(by_expert, key=lambda text: [(len(word), word) for word in text.split(".") if word]):
            starts[called, expert] = start
            start += by_expert[expert]
    return [
        {name: starts[place[name]] + number for name, number in own.items()}
        for own, place in zip(numbers, places, strict=True)
    ]


def _renamed(rank: _Rank, first: Mapping[tuple[int, str], int], calls: Mapping[str, int]) -> RenamedDump:
    """Return the dump of a rank under the names of the whole model."""

    def new(name: str) -> str:
        if is_module_name(name):
            module = split_module(name)
            part = numbered_part(module.path, _EXPERTS)
            if part is None:
                return name
            expert = _numbered_through(f"{part[0]}.{part[1]}", rank.group, first)
            return str(module._replace(path=expert + part[2]))
        number = calls.get(forward_of(name))
        called, rest = split_called(name)
        return name if number is None else f"{called}.{number}.{rest.rpartition('.')[2]}"

    around = rank.surroundings
    surroundings = KnownSurroundings(
        rank.dump.path.parent,
        Table({new(name): parent and new(parent) for name, parent in around.parents.entries.items()}),
        Table({new(name): stack for name, stack in around.stacks.entries.items()}),
        {new(name): step for name, step in around.micro_steps.items()},
    )
    return _with_records(rank.dump, {new(name): raw for name, raw in rank.dump.records.items()}, surroundings)


def _in_one_order(dumps: Sequence[Dump], inside: Sequence[set[str]]) -> Iterator[str]:
    """Yield the names of the first dump, and after each the names within experts that follow it on any rank."""
    following = defaultdict[str, dict[str, None]](dict)
    for dump, experts in zip(dumps, inside, strict=True):
        anchor = ""
        for name in dump.records:
            if name in experts:
                following[anchor][name] = None
            else:
                anchor = name
    yield from following[""]
    for name in dumps[0].records:
        if name not in inside[0]:
            yield name
            yield from following[name]
