"""API mapping: what MindSpore's APIs are called in PyTorch, and which argument of one is which of the other.

Names are those of dumps, ``{Type}.{api}``. The built-in table is ``api_mapping.yaml``; a user's file overrides it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.names import split_called
from msprobe_hooks.dump.values import Group
from msprobe_standards.decoding import decode_yaml
from pytest_msprobe.messages import unknown
from pytest_msprobe.yaml_with_lines import Part, Section, read_document

_TABLE = Path(__file__).with_name("api_mapping.yaml")
_EXAMPLE = "- {ms_api: Functional.abs, pt_api: Torch.abs, ms_args: [0], pt_args: [0]}"
# The words of a file, and the group of values that each is about.
_GROUPS: dict[str, Group] = {
    "args": "input",
    "output": "output",
    "outputs": "output",
    "parameters": "parameters",
    "parameters_grad": "parameters_grad",
}
_KEYS = ["ms_api", "pt_api", *(f"{side}_{word}" for word in _GROUPS for side in ("ms", "pt"))]


@dataclass(frozen=True, slots=True)
class ApiPair:
    """One pair of a user's file; ``place`` is where in the file it is.

    ``places`` gives, by group, PyTorch's index or name for MindSpore's.
    """

    mindspore: str
    pytorch: str
    place: str
    places: Mapping[Group, Mapping[str, str]]


@dataclass(frozen=True)
class ApiMapping:
    """The built-in table with what a user's file adds to it."""

    pairs: Mapping[str, ApiPair] = field(default_factory=dict)

    def translate(self, record: str) -> str:
        """Return what PyTorch's dump calls a record of MindSpore's; number and direction stay."""
        api, rest = split_called(record)
        own = self.pairs.get(api)
        return f"{own.pytorch}{rest}" if own else f"{built_in(api)}{rest}"


@cache
def built_in(api: str) -> str:
    """Return what PyTorch's dumps call one of MindSpore's APIs by the built-in table; its own name where none says."""
    kind, _, name = api.partition(".")
    prefixes = _table()["prefixes"]
    return f"{prefixes[kind]}.{name}" if kind in prefixes else table().get(api, api)


@cache
def table() -> Mapping[str, str]:
    """Return the pairs of the built-in table, the prefixes' aside."""
    pairs = {f"{part['ms']}.{name}": f"{part['pt']}.{name}" for part in _table()["same_name"] for name in part["names"]}
    pairs |= _table()["renamed"] | _table()["not_msprobes"] | _table()["primitives"]
    return pairs


@cache
def _table() -> dict[str, Any]:
    content: dict[str, Any] = decode_yaml(_TABLE.read_bytes())
    return content


def parameter_names() -> Mapping[str, str]:
    """Return what PyTorch's layers call the parameters of MindSpore's."""
    names: Mapping[str, str] = _table()["parameters"]
    return names


def buffer_names() -> Container[str]:
    """Return what PyTorch calls those parameters of MindSpore's layers that are buffers there."""
    names: list[str] = _table()["buffers"]
    return names


def read_apis(source: Path | Section) -> ApiMapping:
    """Read a user's file: one mapping, or a list of them.

    Raises OptionError that names file, line and remedy.
    """
    pairs: dict[str, ApiPair] = {}
    for part in read_document(source, _EXAMPLE).members():
        pair = _pair(part)
        if pair.mindspore in pairs:
            other = pairs[pair.mindspore].place
            raise part.refuse(f"{pair.mindspore!r} is mapped twice, also at {other}; delete one of them")
        pairs[pair.mindspore] = pair
    return ApiMapping(pairs)


def _pair(part: Part) -> ApiPair:
    parts: dict[str, Part] = {}
    for name, key, value in part.items(f"not an API mapping; an entry looks like  {_EXAMPLE}"):
        if name not in _KEYS:
            raise key.refuse(unknown("key", name, _KEYS))
        parts[name] = value
    for name in ("ms_api", "pt_api"):
        if name not in parts:
            raise part.refuse(f"{name} is missing; an entry looks like  {_EXAMPLE}")
    places: dict[Group, Mapping[str, str]] = {}
    for word, group in _GROUPS.items():
        ms_part, pt_part = parts.get(f"ms_{word}"), parts.get(f"pt_{word}")
        if ms_part is None and pt_part is None:
            continue
        if ms_part is None or pt_part is None:
            present, other = ("pt", "ms") if ms_part is None else ("ms", "pt")
            raise parts[f"{present}_{word}"].refuse(f"{present}_{word} without {other}_{word}; specify both")
        if group in places:
            raise ms_part.refuse(f"ms_{word} is there in both spellings; delete one")
        places[group] = _indices(word, ms_part, pt_part)
    name = parts["ms_api"].text("an API such as Functional.abs")
    other = parts["pt_api"].text("an API such as Torch.abs")
    for word, api in (("ms_api", name), ("pt_api", other)):
        if "." not in api.strip("."):
            raise parts[word].refuse(f"{word}: {api!r} is not an API name of a dump, such as Functional.abs")
    return ApiPair(name, other, part.place, places)


def _indices(word: str, ms_part: Part, pt_part: Part) -> Mapping[str, str]:
    lists = [[member.text("an index or a name") for member in part.members()] for part in (ms_part, pt_part)]
    for side, part, texts in (("ms", ms_part, lists[0]), ("pt", pt_part, lists[1])):
        if not part.is_list:
            raise part.refuse(f"{side}_{word} is not a list, such as [0, 1]")
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise part.refuse(f"{side}_{word} lists {twice} twice; each value has one partner")
    if len(lists[0]) != len(lists[1]):
        raise ms_part.refuse(
            f"ms_{word} has {len(lists[0])} members and pt_{word} has {len(lists[1])}; list as many in both"
        )
    return dict(zip(*lists, strict=True))
