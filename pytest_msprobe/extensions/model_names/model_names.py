"""Canonical names of modules and parameters, from any framework's spelling, by files of patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

from pytest_msprobe.extensions.model_names.fused_parts import Arrangement, Canonical, Part, Rows
from pytest_msprobe.yaml_with_lines import Part as YamlPart
from pytest_msprobe.yaml_with_lines import Section, read_document

_EXAMPLE = "names: with lines below it such as  layers.{layer}.mlp.down_proj: {sharded: 1}"
_COMPONENT = re.compile(r"\w*|\{(layer|expert)\}|(weight|bias)\{(layer|expert)\}", re.ASCII)
_NUMBERED = re.compile(r"(\w*)\{(layer|expert)\}", re.ASCII)
_KEYS = {"prefixes", "wrappers", "names", "fused"}


@dataclass(slots=True)
class Node:
    """The patterns that begin alike, one component deep."""

    named: dict[str, Node] = field(default_factory=dict)
    #: By what stands before the number, mostly nothing.
    numbered: dict[str, tuple[str, Node]] = field(default_factory=dict)
    #: The canonical pattern that this one means.
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Fused:
    """Fused parameter, its parts and their arrangement."""

    parts: tuple[Part, ...]
    arrangement: Arrangement


@dataclass(slots=True)
class Patterns:
    """Patterns of all files together; a later file overrules an earlier one."""

    root: Node = field(default_factory=Node)
    fused: dict[str, Fused] = field(default_factory=dict)
    sharded: dict[str, int] = field(default_factory=dict)
    prefixes: set[str] = field(default_factory=set)
    wrappers: set[str] = field(default_factory=set)


def read_patterns(source: Path | Section, patterns: Patterns) -> None:
    """Add a file's patterns. Raises OptionError that names the line of what is wrong."""
    for key, key_part, value in read_document(source, _EXAMPLE).items("a list in place of names, fused, prefixes"):
        if key not in _KEYS:
            raise key_part.refuse(f"{key!r} is not one of {', '.join(sorted(_KEYS))}")
        if key in ("prefixes", "wrappers"):
            known = patterns.prefixes if key == "prefixes" else patterns.wrappers
            known.update(each.text("a component of names") for each in value.members())
            continue
        for name, name_part, given in value.items("a list in place of names, each with what it is"):
            _require_pattern(name, name_part)
            _add(patterns.root, name, name, name_part)
            _read_entry(name, given, patterns, is_fused=key == "fused")


def _read_entry(name: str, given: YamlPart, patterns: Patterns, *, is_fused: bool) -> None:
    parts: tuple[Part, ...] = ()
    arrangement: Arrangement = "blocks"
    for key, key_part, value in given.items(f"no mapping for {name}: expected sharded, also, parts or arrangement"):
        if key == "also":
            for each in value.members():
                spelling = each.text("another spelling")
                _require_pattern(spelling, each)
                if set(_placeholders(spelling)) != set(_placeholders(name)):
                    raise each.refuse(f"{spelling!r} has not the numbers of {name!r}")
                _add(patterns.root, spelling, name, each)
        elif key == "sharded":
            patterns.sharded[name] = int(_choice(value, ("0", "1"), "an axis"))
        elif key == "parts" and is_fused:
            parts = tuple(_parts(name, value))
        elif key == "arrangement" and is_fused:
            known = tuple(each for each in get_args(Arrangement) if each != "whole")
            arrangement = next(each for each in known if each == _choice(value, known, "an arrangement"))
        else:
            raise key_part.refuse(f"{key!r} is not a key of {'fused' if is_fused else 'names'}")
    if is_fused:
        if not parts:
            raise given.refuse(f"{name} has no parts")
        patterns.fused[name] = Fused(parts, arrangement)


def _parts(name: str, value: YamlPart) -> Iterator[Part]:
    allowed = {*_placeholders(name), "expert"}
    for member in value.members():
        for part, part_place, rows in member.items("a name in place of  NAME: ROWS"):
            _require_pattern(part, part_place)
            if set(_placeholders(part)) - allowed:
                raise part_place.refuse(f"{part!r} has numbers that {name!r} has not")
            known = get_args(Rows)
            yield Part(part, next(each for each in known if each == _choice(rows, known, "rows")))


def _choice(value: YamlPart, known: tuple[str, ...], wanted: str) -> str:
    text = value.text(wanted)
    if text not in known:
        raise value.refuse(f"{text!r} is not one of {', '.join(known)}")
    return text


def _require_pattern(name: str, place: YamlPart) -> None:
    if not name or not all(each and _COMPONENT.fullmatch(each) for each in name.split(".")):
        raise place.refuse(f"{name!r} is not a dotted name whose numbers are {{layer}} or {{expert}}")
    if len(found := _placeholders(name)) != len(set(found)):
        raise place.refuse(f"{name!r} has a number twice")


def _placeholders(name: str) -> list[str]:
    return re.findall(r"\{(layer|expert)\}", name)


def _add(root: Node, spelling: str, meaning: str, place: YamlPart) -> None:
    node = root
    for component in spelling.split("."):
        if numbered := _NUMBERED.fullmatch(component):
            name, node = node.numbered.setdefault(numbered[1], (numbered[2], Node()))
            if name != numbered[2]:
                raise place.refuse(f"{spelling!r} has {{{numbered[2]}}} where another pattern has {{{name}}}")
        else:
            node = node.named.setdefault(component, Node())
    node.meaning = meaning


_ARCHITECTURES = Path(__file__).parent / "architectures"
# Parameters of a linear layer whose rows are those of its weight.
_OF_ROWS = frozenset({"", "weight", "bias"})
# More digits than any layer or expert has.
_MOST_DIGITS = 6


class ModelNames:
    """Canonical names by the files that ship for Llama, Qwen, DeepSeek and GLM, and by those of the user."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._known: dict[str, Canonical] = {}

    def canonical(self, name: str) -> Canonical:
        """Return what a module (``decoder.layers.0.mlp``) or parameter (``... .weight``) is; an unknown one is itself.

        What follows the longest name that is known, as in ``layers.0.mlp.down_proj.weight``, is kept.
        """
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._find(name)
        return known

    def _find(self, name: str) -> Canonical:
        components = [each for each in name.split(".") if each not in self._patterns.wrappers] or [name]
        first = 0
        while True:
            found = _longest(self._patterns.root, components[first:])
            if found is not None or first + 1 >= len(components) or components[first] not in self._patterns.prefixes:
                break
            first += 1
        components = components[first:]
        if found is None:
            whole = ".".join(components)
            return Canonical(whole, (Part(whole),), layer=_layer(components))
        meaning, numbers, length = found
        rest = ".".join(components[length:])
        return self._understood(meaning, numbers, rest)

    def _understood(self, meaning: str, numbers: Mapping[str, str], rest: str) -> Canonical:
        whole = _filled(meaning, numbers, rest)
        layer = int(numbers["layer"]) if "layer" in numbers else None
        expert = int(numbers["expert"]) if "expert" in numbers else None
        sharded = self._patterns.sharded.get(meaning)
        if sharded is None and rest == "":
            sharded = self._patterns.sharded.get(meaning.rpartition(".")[0])
        if sharded == 1 and (rest == "bias" or whole.endswith(".bias")):
            sharded = None
        fused = self._patterns.fused.get(meaning)
        if fused is None or rest not in _OF_ROWS:
            return Canonical(whole, (Part(whole),), "whole", sharded, layer, expert, is_known=True)
        parts = tuple(Part(_filled(part.name, numbers, rest), part.rows) for part in fused.parts)
        return Canonical(whole, parts, fused.arrangement, sharded, layer, expert, is_known=True)


@cache
def model_names(files: tuple[Path | Section, ...] = ()) -> ModelNames:
    """Return the names of the files that ship and of the user's. Raises OptionError that names file and line."""
    return read_model_names(files)


def read_model_names(files: Iterable[Path | Section] = ()) -> ModelNames:
    """Read the files that ship and then the user's, which overrule them. Raises OptionError."""
    patterns = Patterns()
    for path in (*sorted(_ARCHITECTURES.glob("*.yaml")), *files):
        read_patterns(path, patterns)
    return ModelNames(patterns)


def _longest(root: Node, components: list[str]) -> tuple[str, dict[str, str], int] | None:
    """Return the meaning of the longest known beginning of a name, its numbers and its length in components."""
    node, numbers, found = root, dict[str, str](), None
    for length, component in enumerate(components, 1):
        following = node.named.get(component)
        if following is None:
            head = component.rstrip("0123456789")
            number = component[len(head) :]
            known = node.numbered.get(head) if 0 < len(number) <= _MOST_DIGITS else None
            if known is None:
                break
            placeholder, following = known
            numbers[placeholder] = str(int(number))
        node = following
        if node.meaning:
            found = node.meaning, dict(numbers), length
    return found


def _filled(pattern: str, numbers: Mapping[str, str], rest: str) -> str:
    for placeholder, number in numbers.items():
        pattern = pattern.replace(f"{{{placeholder}}}", number)
    return f"{pattern}.{rest}" if rest else pattern


def _layer(components: list[str]) -> int | None:
    return next((int(number) for name, number in pairwise(components) if name == "layers" and number.isdecimal()), None)
