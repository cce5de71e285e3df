"""API mapping: MindSpore's APIs and arguments in PyTorch, and which values of two calls belong together.

Names are those of dumps, ``{Type}.{api}``. The built-in table is ``api_mapping.yaml``; a user's file overrides it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from msprobe_hooks.dump.names import coarser, float_dtype, plain_dtype, split_called
from msprobe_hooks.dump.values import Group, PlacedValue, Value
from msprobe_standards.decoding import decode_yaml
from pytest_msprobe.errors import unknown
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row
from pytest_msprobe.yaml_with_lines import Part, Section, read_document

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


_PARAMETERS = frozenset({"parameters", "parameters_grad"})
_NO_GRADIENT = frozenset({"", "NoneType"})
_NUMBERS = frozenset({"int", "float", "bool"})
# What arrives for an output is an input of the backward call, and the other way round.
_TURNED: dict[Group, Group] = {"input": "output", "output": "input"}

_DTYPE = re.compile(rb'"dtype": ?"((?:torch\.)?\w+)"')

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


def named_values(
    pair: ApiPair, target: list[PlacedValue], golden: list[PlacedValue], *, is_forward: bool, is_reversed: bool
) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
    """Return the golden value of each value of the target that a user's entry is about, and golden ones it leaves out.

    Values by full name; None where the entry leaves a value of the target out. An entry lists all values of a group
    that count. Of a backward call it is about the gradients of its lists, and leaves none out: a call has gradients
    of its tensors alone, so their places may be others. ``is_reversed``: the target is the run of PyTorch.
    """
    named: dict[str, PlacedValue | None] = {}
    dropped: set[str] = set()
    for group, places in pair.places.items():
        here = group if is_forward else _TURNED.get(group, group)
        partner_of = {other: own for own, other in places.items()} if is_reversed else places
        by_place = {placed.place: placed for placed in golden if placed.group == here}
        for placed in target:
            if placed.group != here:
                continue
            partner = _partner(placed, partner_of, by_place)
            if partner is not None:
                named[placed.name] = partner
            elif is_forward:
                named[placed.name] = None
        if is_forward:
            used = {value.name for value in named.values() if value is not None}
            dropped |= {placed.name for placed in by_place.values() if placed.name not in used}
    return named, frozenset(dropped)


def _partner(
    placed: PlacedValue, partner_of: Mapping[str, str], by_place: Mapping[str, PlacedValue]
) -> PlacedValue | None:
    words = placed.place.split(".")
    # A place is input.0 or input.dim, and deeper; that of a parameter's gradient begins with its name.
    at = 0 if placed.group == "parameters_grad" else 1
    other = partner_of.get(words[at]) if len(words) > at else None
    return None if other is None else by_place.get(".".join([*words[:at], other, *words[at + 1 :]]))


def renamed_parameters(target: list[PlacedValue], golden: list[PlacedValue]) -> dict[str, PlacedValue | None]:
    """Return the golden parameter of each parameter, or of its gradient, that the frameworks' layers name otherwise."""
    target_values, golden_values = ({placed.key: placed for placed in side} for side in (target, golden))
    unmatched = {
        (group, _shared_place(place)): placed
        for (group, place), placed in target_values.items()
        if group in _PARAMETERS
    }
    return {
        unmatched[key].name: golden_values[place]
        for place in golden_values
        if place not in target_values
        and (key := (place[0], _shared_place(place[1]))) in unmatched
        and unmatched[key].key not in golden_values
    }


def _shared_place(place: str) -> str:
    """Return a place with PyTorch's name of the parameter that it ends in."""
    head, dot, name = place.rpartition(".")
    return f"{head}{dot}{_parameter_names().get(name, name)}"


def across_frameworks(row: Row, *, is_forward: bool) -> Row:
    """Leave out what two frameworks need not share: arguments that one passes otherwise, or fills in itself.

    Tensors are compared, and so are numbers, and texts with texts. A gradient that one side was not asked for is left
    out, and whether a tensor requires one.
    """
    target, golden = row.target, row.golden
    if any(value is not None and value.is_tensor for value in (target, golden)):
        if not is_forward and any(value is None or value.type in _NO_GRADIENT for value in (target, golden)):
            return _left_out(row, "one framework computes no gradient here")
        if (target is None or golden is None) and _is_buffer(row):
            return _left_out(row, "PyTorch records no buffers")
        return replace(row, target=_in_its_widths(_without_grad(target), golden), golden=_without_grad(golden))
    if target is None or golden is None:
        return _left_out(row, "only one framework records this argument")
    if not row.metrics.get(SCALED_ERROR):
        return row
    if target.type == golden.type == "str" or {target.type, golden.type} <= _NUMBERS:
        return row
    if _plain(target) == _plain(golden):
        return replace(row, metrics={**row.metrics, SCALED_ERROR: 0.0})
    return _left_out(row, "the frameworks pass this argument in different forms")


def drop_unrecorded(row: Row) -> Row:
    """Leave out a value that a static graph does not record, or that only a kernel is given."""
    is_unrecorded = None in (row.target, row.golden) or row.unmeasured == "kind"
    return _left_out(row, "not recorded in the static graph") if is_unrecorded else row


def _without_grad(value: Value | None) -> Value | None:
    return value and replace(value, requires_grad=None)


def _is_buffer(row: Row) -> bool:
    return row.group == "parameters" and _shared_place(row.place).rpartition(".")[2] in _buffer_names()


def _in_its_widths(target: Value | None, golden: Value | None) -> Value | None:
    """Return the target with the dtype of golden where both are integers: classes and indices have 32 bits or 64."""
    if target is None or golden is None or not all(_is_integer(value) for value in (target, golden)):
        return target
    return replace(target, dtype=golden.dtype)


def _is_integer(value: Value) -> bool:
    return plain_dtype(value.dtype).startswith(("int", "uint"))


def _plain(value: Value) -> str:
    """Return a value's text in the spelling that frameworks share: dtypes are the texts that they spell differently."""
    return plain_dtype(value.text)


def _left_out(row: Row, message: str) -> Row:
    return replace(row, outcome="skip", unmeasured="left out", messages=(message,))


def without_sums(rows: list[Row], *, is_further_pass: bool) -> list[Row]:
    """Return judged rows without the parameters' gradients of further backward passes of a step, where they differ.

    PyTorch's dumps hold what has accumulated, MindSpore's the gradients of each pass.
    """
    if not is_further_pass:
        return rows
    return [_left_out(row, "PyTorch's gradients accumulate over passes") if row.differs else row for row in rows]


def paired_gradients(
    target: list[PlacedValue], golden: list[PlacedValue]
) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
    """Return the golden gradient of each gradient of a backward call whose places say nothing, and golden ones left.

    One framework writes None for a gradient that was not asked for, another one leaves it out and moves the rest up.
    As many tensors on both sides are the same ones in order; where one side has more, those that its shape identifies.
    """
    named: dict[str, PlacedValue | None] = {}
    dropped: set[str] = set()
    for group in ("input", "output"):
        of_target, of_golden = ([placed for placed in side if placed.group == group] for side in (target, golden))
        of_group = (of_target, of_golden)
        target_tensors, golden_tensors = ([placed for placed in side if placed.value.is_tensor] for side in of_group)
        if [placed.place for placed in target_tensors] == [placed.place for placed in golden_tensors]:
            continue
        partners: dict[str, PlacedValue] = {}
        if [placed.value.shape for placed in target_tensors] == [placed.value.shape for placed in golden_tensors]:
            partners = {placed.name: partner for placed, partner in zip(target_tensors, golden_tensors, strict=True)}
        else:
            target_counts = Counter(placed.value.shape for placed in target_tensors)
            golden_counts = Counter(placed.value.shape for placed in golden_tensors)
            by_shape = {placed.value.shape: placed for placed in golden_tensors}
            for placed in target_tensors:
                if target_counts[placed.value.shape] == golden_counts[placed.value.shape] == 1:
                    partners[placed.name] = by_shape[placed.value.shape]
        named |= {placed.name: partners.get(placed.name) for placed in of_target}
        used = {placed.name for placed in partners.values()}
        dropped |= {placed.name for placed in of_golden if placed.name not in used}
    return named, frozenset(dropped)


def coarsest_so_far(dump: Dump) -> dict[str, str]:
    """Return the coarsest float dtype of a run's tensors up to each record, that record included; finest, float32."""
    coarsest_by_record: dict[str, str] = {}
    names: dict[bytes, str] = {}
    coarsest = "float32"
    for name, raw in dump.records.items():
        for dtype in set(_DTYPE.findall(bytes(raw))):
            if dtype not in names:
                names[dtype] = float_dtype(dtype.decode()) or "float64"
            coarsest = coarser(coarsest, names[dtype])
        coarsest_by_record[name] = coarsest
    return coarsest_by_record


def at_precision(row: Row, target: str, golden: str) -> Row:
    """Return a row with both sides' floats as coarse as their runs were; parameters are not computed."""
    if row.group == "parameters":
        return row
    return replace(row, target=_as_coarse(row.target, target), golden=_as_coarse(row.golden, golden))


def _as_coarse(value: Value | None, dtype: str) -> Value | None:
    own = float_dtype(value.dtype) if value is not None else None
    if value is None or own is None or own == "float64" or coarser(own, dtype) == own:
        return value
    return replace(value, dtype=dtype)


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


def _parameter_names() -> Mapping[str, str]:
    """Return what PyTorch's layers call the parameters of MindSpore's."""
    names: Mapping[str, str] = _table()["parameters"]
    return names


def _buffer_names() -> Container[str]:
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
