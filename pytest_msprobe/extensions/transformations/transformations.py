"""Transformations of values by side, of a file and of the hook ``pytest_msprobe_transform``, and what they compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from msgspec.structs import replace

from msprobe_hooks.dump.values import Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import counted
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.errors import OptionError, not_one_of, unknown
from pytest_msprobe.extensions.transformations.axes import Permute, Reshape, Slice, Transpose
from pytest_msprobe.extensions.transformations.block_orders import (
    BlockOrder,
    Product,
    QkvOrder,
    RotaryPairs,
    read_msprobe_matrices,
)
from pytest_msprobe.extensions.transformations.entries import (
    Entry,
    NamePattern,
    Names,
    Transformed,
    judged_as,
    refused,
    refused_shapes,
)
from pytest_msprobe.extensions.transformations.step import (
    ALL_KEPT,
    NONE_KEPT,
    SIDES,
    CallTensors,
    Dequantisation,
    Scaling,
    Shape,
    Side,
    Step,
    StepError,
    choice,
    fields,
    integer_range,
)
from pytest_msprobe.modes.compare.measure.call_values import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.measure.compared_sides import BY_NORM, NOT_COMPARED, ComparedSides
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS, DataMode, Row
from pytest_msprobe.yaml_with_lines import Part, read_document

if TYPE_CHECKING:
    import torch

    from msprobe_hooks.dump.reader import Dump

    TensorFunction: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Transformations:
    """All entries of a run. A value that several of them name is turned by each, in their order."""

    entries: tuple[Entry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def of(self, side: Side, value: Value) -> Transformed | None:
        """Return how a tensor of a side is turned, None where it is compared as it was recorded."""
        if not value.is_tensor:
            return None
        entries = tuple(entry for entry in self._candidates(side, value.name) if entry.names.has(value))
        if not entries:
            return None
        steps = ", then ".join(step.says for entry in entries for step in entry.steps)
        transformed = Transformed(entries, f"{side} {steps}")
        precision = transformed.precision
        return transformed._replace(words=f"{transformed.words}, judged as {precision}") if precision else transformed

    def _candidates(self, side: Side, name: str) -> list[Entry]:
        """Return the entries of a side that may name a value, in their order."""
        tables = self._by_beginning[side]
        places = [place for length, table in tables.items() for place in table.get(name[:length], ())]
        return [self.entries[place] for place in sorted(places)]

    @cached_property
    def _by_beginning(self) -> dict[Side, dict[int, dict[str, list[int]]]]:
        """The places of entries by side, length and text of their names' beginning: layers have hundreds of entries."""
        places: dict[Side, dict[int, dict[str, list[int]]]] = {side: {} for side in SIDES}
        for place, entry in enumerate(self.entries):
            beginning = entry.names.beginning
            places[entry.side].setdefault(len(beginning), {}).setdefault(beginning, []).append(place)
        return places

    def header(self) -> str:
        """Return what the run's header says of them; empty for nothing."""
        return f"transformed first: {counted(len(self.entries), 'entry', 'entries')}" if self.entries else ""

    def settings(self) -> Mapping[str, str]:
        """Return the places of the entries that no file holds."""
        places = [entry.place for entry in self.entries if any(isinstance(step, OwnFunction) for step in entry.steps)]
        return {"transformations": ", ".join(places)}

    def measured(self, row: Row, sides: ComparedSides, records: tuple[str, str], mode: DataMode) -> Row | None:
        """Return the measured row of a pair of tensors of which one is turned, None where neither is."""
        assert row.target is not None
        assert row.golden is not None
        transformed = (self.of("target", row.target), self.of("golden", row.golden))
        if not any(transformed):
            return None

        return _transformed_row(transformed, row, sides, records, mode)

    def may_concern(self, side: Side, record: str) -> bool:
        """Return whether a value of a record may be turned."""
        return any(entry.side == side and entry.names.may_be_of(record) for entry in self.entries)

    @property
    def files(self) -> Sequence[Path]:
        """The files that the steps read."""
        return list(dict.fromkeys(file for entry in self.entries for step in entry.steps for file in step.files))

    def without_effect(self, targets: Iterable[Dump], goldens: Iterable[Dump]) -> list[str]:
        """Return, in words, the entries that name no tensor of any dump of their side."""
        sides = dict(zip(SIDES, (list(targets), list(goldens)), strict=True))
        return [
            f"{entry.place}: no tensor of the {entry.side} run is named {entry.names.text}"
            for entry in self.entries
            if not any(_has_any(entry.names, dump) for dump in sides[entry.side])
        ]


def _has_any(names: Names, dump: Dump) -> bool:
    for record in dump.records:
        if names.may_be_of(record):
            try:
                if any(placed.value.is_tensor and names.has(placed.value) for placed in read_values(dump, record)):
                    return True
            except DumpError:
                # Its own item says what is wrong with it.
                continue
    return False


@dataclass(frozen=True)
class OwnFunction:
    """A function of the user's own; it needs the tensor, so that no statistics survive it."""

    function: TensorFunction
    says: str

    @property
    def keeps(self) -> frozenset[str]:
        """No statistics."""
        return NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the shape unchanged: what the function makes of it is not known before it is called."""
        return shape

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return what the function makes of a copy of the tensor."""
        import torch

        try:
            turned = self.function(tensor.clone())
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            raise StepError(f"{type(error).__name__}: {first_line}") from None
        if not isinstance(turned, torch.Tensor):
            raise StepError(f"it returned a {type(turned).__name__}, not a tensor")
        return turned.detach().cpu()


class TransformRegistry:
    """Collects the transformations of plugins and ``conftest.py`` files."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, match: str, side: Side, function: TensorFunction, *, says: str | None = None) -> None:
        """Turn the values of a side that a pattern names by ``function``.

        Args:
            match: Full names of values, such as ``Module.layers.*.output.0``; ``*`` is any text.
            side: ``"target"`` or ``"golden"``.
            function: What returns the turned tensor for the recorded one, a CPU tensor that it may change.
            says: What it does, after the side's name in reports; by default ``turned by`` its name.

        Raises:
            ValueError: There is no such side.
        """
        if side not in SIDES:
            raise ValueError(f"side {side!r} is {not_one_of(side, SIDES)}")
        name = getattr(function, "__name__", type(function).__name__)
        step = OwnFunction(function, says or f"turned by {name}")
        self.entries.append(Entry(NamePattern(match), side, (step,), f"pytest_msprobe_transform, {match}"))


def _transformed_row(
    transformed: tuple[Transformed | None, Transformed | None],
    row: Row,
    sides: ComparedSides,
    records: tuple[str, str],
    mode: DataMode,
) -> Row:
    """Return the measured row of a pair of tensors of which one is turned, as ``transformed`` says.

    ``records`` are those of the target and the golden call. Where files were recorded, these are read whatever
    ``mode`` the caller compares by.
    """
    target, golden = row.target, row.golden
    assert target is not None
    assert golden is not None
    row = replace(row, transformed=tuple(side.words for side in transformed if side is not None))
    if sides.mode == "tensor" and target.data_name and golden.data_name:
        import_torch()
        from pytest_msprobe.extensions.transformations.transformed_tensors import measure_transformed

        return measure_transformed(row, sides, records, transformed)
    if sides.mode == "tensor" and (target.data_name or golden.data_name):
        message = f"{'golden' if target.data_name else 'target'} has no data file"
        return replace(row, unmeasured="no file", messages=(message,))
    return _by_statistics(row, transformed, mode)


def _by_statistics(row: Row, both: tuple[Transformed | None, ...], mode: DataMode) -> Row:
    invariant = frozenset.intersection(ALL_KEPT, *(side.keeps for side in both if side is not None))
    words = "; ".join(row.transformed)
    if not invariant or mode == "md5":
        return replace(row, outcome="skip", unmeasured="left out", messages=(f"{NOT_COMPARED}{words}",))
    values: list[Value] = []
    for value, transformed in zip((row.target, row.golden), both, strict=True):
        assert value is not None
        shape = value.shape
        for entry in transformed.entries if transformed is not None else ():
            try:
                for step in entry.steps:
                    shape = step.shape(shape)
            except StepError as error:
                return refused(row, entry, f"{error} ({value.name})")
        numbers = value.statistics and tuple(
            number if name in invariant else None for name, number in zip(STATISTICS, value.statistics, strict=True)
        )
        values.append(replace(value, shape=shape, statistics=numbers))
    target, golden = values
    if target.shape != golden.shape:
        return refused_shapes(row, both, list(target.shape), list(golden.shape))
    row = replace(row, target=target, golden=golden)
    scaled = scaled_error(target, golden)
    if scaled is None:
        return replace(row, unmeasured="no value" if math.prod(target.shape) else "empty")
    notes = () if invariant == ALL_KEPT else (f"{BY_NORM}{words}",)
    row = replace(row, metrics={**measure_statistics(target, golden), SCALED_ERROR: scaled}, messages=notes)
    return judged_as(row, both)


_EXAMPLE = "- {match: Module.*.output.0, side: golden, steps: [{rotate: {by: Q.npy}}]}"
_KEYS = ("match", "side", "steps", "precision", "each")
PRECISIONS: Final = ("float8", "bfloat16", "float16", "float32", "float64")

#: What reads each step, by its name in a file.
STEPS: Final[Mapping[str, Callable[[Part], Step]]] = {
    "rotate": Product.of_rotation,
    "multiply": Product.of_any,
    "dequantise": Dequantisation.read,
    "scale": Scaling.read,
    "transpose": Transpose.read,
    "permute": Permute.read,
    "reshape": Reshape.read,
    "slice": Slice.read,
    "reorder": BlockOrder.read,
    "rotary": RotaryPairs.read,
    "qkv": QkvOrder.read,
}


def read_transformations(path: Path) -> Transformations:
    """Read a file of transformations with the arrays that it names.

    Raises OptionError that names file, line, problem and remedy.
    """
    document = read_document(path, _EXAMPLE)
    if document.is_mapping:
        return Transformations(tuple(read_msprobe_matrices(document)))
    if not document.is_list:
        raise OptionError("not a list of entries", file=document.place, remedy=f"an entry looks like  {_EXAMPLE}")
    return Transformations(tuple(entry for part in document.members() for entry in _entries(part)))


def _entries(part: Part) -> Iterator[Entry]:
    """Yield the entry of a part, or one for each number of its key ``each``."""
    numbered = fields(part, _KEYS).get("each")
    if numbered is None:
        yield _entry(part)
        return
    names = list(numbered.items("not a word and its numbers, such as  {layer: 0-31}"))
    if len(names) != 1:
        raise numbered.refuse("not one word and its numbers, such as  {layer: 0-31}")
    word, _, numbers = names[0]
    for number in integer_range(numbers):
        yield _entry(part.with_text(f"<{word}>", str(number)))


def _entry(part: Part) -> Entry:
    keys = fields(part, _KEYS, required=("match", "side", "steps"))
    steps = keys["steps"]
    if not steps.is_list or not steps.members():
        raise steps.refuse("steps is not a list of steps")
    return Entry(
        NamePattern(keys["match"].text("a pattern of names of values")),
        cast("Side", choice(keys["side"], SIDES)),
        tuple(map(_step, steps.members())),
        part.place,
        choice(keys["precision"], PRECISIONS) if "precision" in keys else None,
    )


def _step(part: Part) -> Step:
    named = list(part.items("not a step, such as  rotate: {by: Q.npy}"))
    if len(named) != 1:
        raise part.refuse("each step is a list item of its own, with its name as its only key")
    name, key, value = named[0]
    if name not in STEPS:
        raise key.refuse(unknown("step", name, STEPS))
    return STEPS[name](value)
