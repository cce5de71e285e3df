"""The forward passes of a run: which record of which rank and step is which module's call in which pass."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msprobe_hooks.dump.names import direction_of, is_module_name, split_module
from msprobe_hooks.dump.reader import Dump, positional_names, read_dump
from msprobe_hooks.dump.recording_paths import find_dumps, step_rank
from msprobe_hooks.dump.tokens import FILE, PassTokens
from msprobe_hooks.dump.values import PlacedValue, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.extensions.inference.token_layout import (
    Integers,
    Segment,
    TokenInputs,
    TokenLayout,
    read_integers,
    token_layout,
)
from pytest_msprobe.extensions.model_names.model_names import ModelNames

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.judging.shape_changes import MicroBatches

EMBEDDING = "embed_tokens"
ROTARY = "rotary_emb"
_LAYER = re.compile(r"\blayers\.([0-9]{1,6})\.")
_TOKENS = re.compile(r"(input_ids|tokens?)")
_POSITIONS = re.compile(r"(positions?|position_ids)")
_MASK = re.compile(r"attention_mask")
_ENDS = re.compile(r"(cu_seqlens(_q)?|cu_seq_lens_q|query_start_loc|qo_indptr)")
_MOST_TOKENS = 2**24  # of one tensor; a choice, larger than any pass, that bounds what is read


@dataclass(frozen=True)
class ModuleCall:
    """A module's call in a pass: the rank that recorded it, its number among the pass's ranks, and the record."""

    rank: int
    dump: Dump
    record: str

    @cached_property
    def values(self) -> list[PlacedValue]:
        """The recorded values. Raises RecordError where the record is malformed."""
        return read_values(self.dump, self.record)


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One forward pass of the model, on one rank or on several that share it.

    ``modules`` has the calls by the module's own path, in the order in which they ended, one for each rank.
    """

    step: int | None
    number: int
    modules: Mapping[str, Sequence[ModuleCall]]
    layout: TokenLayout | None

    @property
    def place(self) -> str:
        """The pass in words."""
        return f"step {self.step}, pass {self.number}" if self.step is not None else f"pass {self.number}"


@dataclass(frozen=True, slots=True)
class RankPass:
    """Records of a pass on one rank."""

    dump: Dump
    modules: Mapping[str, str]
    layout: TokenLayout | None


def read_passes(folder: Path, names: ModelNames, batches: MicroBatches | None = None) -> list[ForwardPass]:
    """Return the forward passes of all steps and ranks below a folder, or in a file, in their order.

    Ranks with the same tokens in a pass share it (tensor or pipeline parallelism); others have passes of their own.
    Of a step in other micro-batches of which no tokens are known, the sequences are numbered through.
    Raises DumpError where a dump cannot be used.
    """
    paths = [folder] if folder.is_file() else find_dumps(folder)
    steps = defaultdict[Path, list[Path]](list)
    for path in paths:
        steps[path.parent.parent if step_rank(path).step is not None else path.parent].append(path)
    forward_passes: list[ForwardPass] = []
    for ranks in steps.values():
        by_rank = [list(_rank_passes(read_dump(path), names)) for path in ranks]
        for number in range(max(map(len, by_rank), default=0)):
            shared: list[list[RankPass]] = []
            for own in (passes[number] for passes in by_rank if number < len(passes)):
                group = next((group for group in shared if _is_shared(group[0], own)), None)
                if group is None:
                    shared.append([own])
                else:
                    group.append(own)
            forward_passes += [_forward_pass(step_rank(ranks[0]).step, number, group) for group in shared]
    if not any(forward_pass.modules for forward_pass in forward_passes):
        raise DumpError(
            f"{folder}: no calls of modules; record both runs at level L0 or mix with task tensor and model="
        )
    if batches is not None and _are_sequences(batches) and all(one.layout is None for one in forward_passes):
        return list(_numbered_through(forward_passes, batches.module))
    return forward_passes


def _are_sequences(batches: MicroBatches) -> bool:
    """Return whether the first dimensions of all calls of a run add up to the same in both."""
    return sum(shape[0] for shape in batches.target) == sum(shape[0] for shape in batches.golden)


def _numbered_through(forward_passes: Sequence[ForwardPass], module: str) -> Iterator[ForwardPass]:
    """Yield passes in which each entry of the batch that a module is given is a request of one row."""
    number = 0
    for forward_pass in forward_passes:
        values = (placed.value for call in forward_pass.modules.get(module, ())[:1] for placed in call.values)
        size = next((value.shape[0] for value in values if value.is_tensor and value.shape), 0)
        rows = [Segment(0, np.array([row]), request=str(number + row)) for row in range(size)]
        number += size
        yield replace(forward_pass, layout=TokenLayout((size,), rows) if rows else None)


def _is_shared(one: RankPass, other: RankPass) -> bool:
    if one.layout is None or other.layout is None:
        return one.layout is other.layout
    return one.layout.is_equal(other.layout)


def _forward_pass(step: int | None, number: int, group: Sequence[RankPass]) -> ForwardPass:
    modules = defaultdict[str, list[ModuleCall]](list)
    for rank, own in enumerate(group):
        for path, record in own.modules.items():
            modules[path].append(ModuleCall(rank, own.dump, record))
    return ForwardPass(step, number, dict(modules), group[0].layout)


def _rank_passes(dump: Dump, names: ModelNames) -> Iterator[RankPass]:
    calls = defaultdict[str, list[str]](list)
    for name in dump.records:
        if is_module_name(name) and direction_of(name) == "forward" and not dump.is_recomputed(name):
            calls[split_module(name).path].append(name)
    if not calls:
        return
    counts = Counter(map(len, calls.values()))
    embedding = calls.get(_embedding({path: own[0] for path, own in calls.items()}, names))
    count = len(embedding) if embedding else counts.most_common(1)[0][0]
    noted = read_tokens(dump.path.parent)
    number_of_notes = f"{len(noted)} passes were noted in {dump.path.parent}, and {count} recorded"
    for number in range(count):
        modules = {path: own[number] for path, own in calls.items() if len(own) == count} | _shared(
            calls, number, count
        )
        layout = _layout(dump, modules, names, noted[number] if number < len(noted) else None)
        if layout is not None and noted and len(noted) != count and not number:
            layout = replace(layout, notes=(*layout.notes, number_of_notes))
        yield RankPass(dump, modules, layout)


def _embedding(modules: Mapping[str, str], names: ModelNames) -> str:
    """Return the path of the module that embeds the tokens: the first of the class where none has its name."""
    named = (path for path in modules if names.canonical(path).name == EMBEDDING)
    of_class = (path for path, record in modules.items() if split_module(record).class_name == "Embedding")
    return next(chain(named, of_class), "")


def _shared(calls: Mapping[str, Sequence[str]], number: int, count: int) -> dict[str, str]:
    """Return the calls in a pass of rotary embeddings that all layers share, by the layer that made each."""
    layers = sorted({int(match[1]) for path in calls if (match := _LAYER.search(path))})
    return {
        _LAYER.sub(f"layers.{layer}.", path, count=1): own[number * len(layers) + place]
        for path, own in calls.items()
        if path.endswith(ROTARY) and _LAYER.search(path) and count < len(own) == count * len(layers)
        for place, layer in enumerate(layers)
    }


def _layout(dump: Dump, modules: Mapping[str, str], names: ModelNames, noted: PassTokens | None) -> TokenLayout | None:
    """Return the tokens of a pass, None where nothing that was recorded says them."""
    integers_by_key: dict[str, Integers] = {}
    embedding = modules.get(_embedding(modules, names))
    # The outer modules were given the tokens, and ended last.
    for record in reversed([*modules.values()]):
        names_of = positional_names(dump, record)
        for placed in read_values(dump, record):
            key = _meaning(placed, names_of)
            if placed.group == "input" and key and key not in integers_by_key:
                integers = read_integers(placed.value, dump)
                if integers is not None and integers.size < _MOST_TOKENS:
                    integers_by_key[key] = integers
    if embedding is not None:
        first = next(
            (placed_value for placed_value in read_values(dump, embedding) if placed_value.group == "input"), None
        )
        tokens = None if first is None else read_integers(first.value, dump)
        if tokens is not None and 1 <= tokens.ndim <= 2:
            integers_by_key["tokens"] = tokens
    shape = _leading(integers_by_key, embedding, dump)
    if shape is None:
        return None if noted is None else token_layout(TokenInputs((sum(noted.lengths),)), noted)
    rows = int(np.prod(shape))
    positions = integers_by_key.get("positions")
    if positions is None or positions.size not in (rows, shape[-1]):
        positions = next(iter(_unnamed_positions(dump, modules, rows)), None)
    mask = integers_by_key.get("mask")
    ends = integers_by_key.get("ends")
    inputs = TokenInputs(
        shape,
        integers_by_key.get("tokens"),
        positions,
        mask if mask is not None and mask.shape == shape else None,
        ends if ends is not None and ends.ndim == 1 and ends[-1] <= rows else None,
    )
    layout = token_layout(inputs, noted)
    count = sum(value is not None for value in (inputs.token_ids, inputs.mask, inputs.positions))
    unnamed = "" if inputs.mask is not None else _unnamed(dump, modules, shape, count)
    return replace(layout, notes=(*layout.notes, unnamed)) if unnamed else layout


def _unnamed(dump: Dump, modules: Mapping[str, str], shape: tuple[int, ...], count: int) -> str:
    """Return which module was given more integers for each token than are known, by position; empty where none was."""
    for record in reversed([*modules.values()]):
        integers = [
            placed.place
            for placed in read_values(dump, record)
            if placed.group == "input"
            and placed.place.removeprefix("input.").isdecimal()
            and placed.value.shape[-1:] == shape[-1:]
            and ("int" in placed.value.dtype.lower() or placed.value.dtype.lower().endswith("bool"))
        ]
        if len(integers) > count and not positional_names(dump, record):
            return (
                f"{record} was given {', '.join(integers)} by position, and the dump has no names of these: none is "
                "taken for a mask, padding may count as tokens; record again, or pass the mask by name"
            )
    return ""


def _meaning(placed: PlacedValue, names: Sequence[str]) -> str:
    """Return what an input is by its name, which ``names`` have of positional ones; empty where that says nothing."""
    before, _, word = placed.place.rpartition(".")
    if before == "input" and word.isdecimal() and int(word) < len(names):
        word = names[int(word)]
    table = (("tokens", _TOKENS), ("positions", _POSITIONS), ("mask", _MASK), ("ends", _ENDS))
    return next((key for key, pattern in table if pattern.fullmatch(word)), "")


def _leading(integers: Mapping[str, Integers], embedding: str | None, dump: Dump) -> tuple[int, ...] | None:
    tokens = integers.get("tokens")
    if tokens is not None:
        return tuple(tokens.shape)
    if embedding is not None:
        output = next((placed.value for placed in read_values(dump, embedding) if placed.group == "output"), None)
        if output is not None and output.is_tensor and len(output.shape) in (2, 3):
            return output.shape[:-1]
    mask = integers.get("mask")
    return tuple(mask.shape) if mask is not None and mask.ndim == 2 else None


def _unnamed_positions(dump: Dump, modules: Mapping[str, str], rows: int) -> Iterator[Integers]:
    """Yield integers that layers or rotary embeddings were given for each token: their positions."""
    for path, record in modules.items():
        if "layers." not in path and not path.endswith("rotary_emb"):
            continue
        for placed in read_values(dump, record):
            if placed.group == "input" and placed.value.is_tensor and int(np.prod(placed.value.shape)) == rows:
                positions = read_integers(placed.value, dump)
                if positions is not None:
                    yield positions


def read_tokens(folder: Path) -> list[PassTokens]:
    """Return the tokens of each forward pass of a dump, none where there is no file.

    Args:
        folder: The folder of the dump.

    Returns:
        The lines, in the order of the passes.

    Raises:
        DumpError: A line is not of this form; the text names the line.
    """
    path = folder / FILE
    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    passes = []
    for number, line in enumerate(lines, 1):
        try:
            tokens = decode_json(line, PassTokens)
            problem = tokens.problem()
        except JsonError as error:
            problem = str(error)
        if problem:
            raise DumpError(f"{path}, line {number}: {problem}; delete the file, or record again")
        passes.append(tokens)
    return passes
