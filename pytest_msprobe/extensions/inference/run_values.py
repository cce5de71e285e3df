"""Values of one run by module, under the trainer's names, in the order of the forward pass, as rows for tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from msprobe_hooks.dump.names import float_dtype
from pytest_msprobe.extensions.inference.passes import EMBEDDING, ROTARY, ForwardPass, ModuleCall
from pytest_msprobe.extensions.inference.token_layout import UnalignedError, by_row, joined, read_tensor
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes, UnknownSizesError, part_rows

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.extensions.model_names.fused_parts import Canonical
    from pytest_msprobe.extensions.model_names.model_names import ModelNames

#: What a module was given, as a value of its own: ``layers.0.self_attn.o_proj.input``.
INPUT = ".input"
LOGITS = "lm_head"
#: The rotated queries and keys of a layer, behind the name of its attention.
ROTATED = (f".{ROTARY}.query", f".{ROTARY}.key")
_LOGITS_PROCESSOR = "logits_processor"
# The same name is another function in an engine, which multiplies by the other half there.
_NOT_COMPARED = ("act_fn",)
# Their input is the residual stream.
_STREAM_NORMS = ("input_layernorm", "post_attention_layernorm", "norm")

#: Picks values of a call; sums them where it returns several.
Pick = Callable[[ModuleCall], Sequence["Value"]]


@dataclass(frozen=True, slots=True)
class Source:
    """Place of a module's value in the records: the module, which of its values, and which columns of these."""

    path: str
    canonical: Canonical
    pick: Pick
    part: str = ""


class RunValues:
    """The values of a run by their names in the trainer's model.

    ``sizes`` say where parts lie in what is fused. Where they do not, ``other`` has the widths of the other run.
    """

    def __init__(self, passes: Sequence[ForwardPass], names: ModelNames, sizes: ModelSizes) -> None:
        self.passes = [forward_pass for forward_pass in passes if forward_pass.layout is not None]
        #: How many passes have rows of unknown tokens.
        self.left_out = len(passes) - len(self.passes)
        self._names = names
        self.sizes = sizes
        self.widths: Mapping[str, int] = {}

    @cached_property
    def modules(self) -> dict[str, Canonical]:
        """Return what the module of each path is, in the order in which they ended."""
        paths = dict.fromkeys(path for forward_pass in self.passes for path in forward_pass.modules)
        return {path: self._names.canonical(path) for path in paths}

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Return where each value is, in the order of the forward pass."""
        return dict(self._sources())

    @cached_property
    def rotated(self) -> list[str]:
        """The rotated queries and keys that the run returned, or that follow from its cosines and sines."""
        layers = sorted({one.layer for one in self.modules.values() if one.layer is not None})
        names = [f"layers.{layer}.self_attn{tail}" for layer in layers for tail in ROTATED]
        return [name for name in names if self.has(name)]

    @cached_property
    def own_widths(self) -> dict[str, int]:
        """Return how many columns each value of an unfused module has, as a whole."""
        widths: dict[str, int] = {}
        for name, source in self.sources.items():
            values = self._values(name)
            if values and not source.part:
                calls = self.calls(name)
                ranks = len(calls) if source.canonical.sharded == 0 else 1
                widths[name] = values[0].shape[-1] * ranks
        rotated = {name: self._rotated_from(name) for name in self.rotated}
        return widths | {name: widths[before] for name, before in rotated.items() if before in widths}

    def dtype(self, name: str) -> str:
        """Return the floating-point dtype of a value by its plain name, empty where it is of none."""
        if name.endswith(ROTATED):
            return self.dtype(self._rotated_from(name)) if name not in self.sources else self._dtype(name)
        return self._dtype(name)

    def record(self, name: str) -> str:
        """Return the record in which a value was found first; empty for one that is computed from others."""
        calls = self.calls(name)
        return calls[0].record if calls else ""

    def has(self, name: str) -> bool:
        """Return whether the run recorded a value, or what it follows from."""
        return name in self.sources or (name.endswith(ROTATED) and bool(self._rotary_path and self._rotated_from(name)))

    def rows(self, name: str, number: int, width: int | None) -> torch.Tensor | None:
        """Return the rows of a value in a pass, of ``width`` columns where that is known; None where it has none.

        Raises UnalignedError where its rows are no tokens, DumpError where a file is missing.
        """
        if name not in self.sources:
            return self._rotated(name, number)
        source, run = self.sources[name], self.passes[number]
        layout = run.layout
        calls = run.modules.get(source.path)
        if calls is None or layout is None:
            return None
        parts = []
        for call in calls:
            tensors = [read_tensor(value, call.dump) for value in source.pick(call)]
            if not tensors:
                return None
            summed = tensors[0] if len(tensors) == 1 else sum(tensors[1:], tensors[0])
            tail = name.removesuffix(INPUT).rpartition(".")[2]
            rows = by_row(summed, layout, has_heads=tail in ("q_norm", "k_norm"))
            parts.append(self._part(source, rows))
        is_input = name.endswith(INPUT)
        sharded = source.canonical.sharded
        axis = (0 if sharded == 1 else None) if is_input else sharded
        return joined(parts, layout, width, axis if axis == 0 else None)

    def _part(self, source: Source, rows: torch.Tensor) -> torch.Tensor:
        if not source.part:
            return rows
        try:
            parts = part_rows(source.canonical, rows.shape[1], self.sizes, self.widths)
        except UnknownSizesError as error:
            raise UnalignedError(str(error)) from None
        own = next(part for part in parts if part.name == source.part)
        return torch.cat([rows[:, columns] for columns in own.rows], dim=1)

    def _sources(self) -> Iterator[tuple[str, Source]]:
        for path, canonical in self.modules.items():
            name, tail = canonical.name, canonical.name.rpartition(".")[2]
            if tail == _LOGITS_PROCESSOR:
                name = LOGITS
            if tail in _NOT_COMPARED or tail == ROTARY:
                if tail == ROTARY:
                    yield from self._of_rotary(path, canonical)
                continue
            if canonical.is_fused:
                yield from ((part.name, Source(path, canonical, _output, part.name)) for part in canonical.parts)
                continue
            if _is_stream_norm(canonical):
                yield name + INPUT, Source(path, canonical, _stream)
            elif canonical.sharded == 1:
                yield name + INPUT, Source(path, canonical, _input)
            if canonical.layer is not None and tail == str(canonical.layer):
                yield name, Source(path, canonical, _layer_output)
            else:
                yield name, Source(path, canonical, _output)

    def _of_rotary(self, path: str, canonical: Canonical) -> Iterator[tuple[str, Source]]:
        calls = next((forward_pass.modules[path] for forward_pass in self.passes if path in forward_pass.modules), ())
        outputs = [value for call in calls[:1] for value in _floats(call, "output")]
        shapes = {value.shape for call in calls[:1] for value in _floats(call, "input")}
        if len(outputs) != 2:
            return
        if {value.shape for value in outputs} <= shapes:
            attention = canonical.name.removesuffix(f".{ROTARY}")
            for number, tail in enumerate(ROTATED):
                yield attention + tail, Source(path, canonical, _nth_output(number))
        elif canonical.layer is None:
            yield f"{ROTARY}.cos", Source(path, canonical, _nth_output(0))
            yield f"{ROTARY}.sin", Source(path, canonical, _nth_output(1))

    @cached_property
    def _rotary_path(self) -> str:
        source = self.sources.get(f"{ROTARY}.cos")
        return source.path if source is not None else ""

    def _rotated_from(self, name: str) -> str:
        """Return the value that is rotated: the normalised queries or keys where there are such."""
        attention = name.removesuffix(ROTATED[0]).removesuffix(ROTATED[1])
        letter = "q" if name.endswith(ROTATED[0]) else "k"
        own = (f"{attention}.{letter}_norm", f"{attention}.{letter}_proj")
        return next((candidate for candidate in own if candidate in self.sources), "")

    def _rotated(self, name: str, number: int) -> torch.Tensor | None:
        """Return queries or keys as cosines and sines of the model rotate them: the two halves of each head."""
        before = self._rotated_from(name)
        rows = self.rows(before, number, None) if before else None
        cos, sin = (self._angles(f"{ROTARY}.{word}", number) for word in ("cos", "sin"))
        if rows is None or cos is None or sin is None or rows.shape[1] % cos.shape[1]:
            return None
        heads = rows.reshape(len(rows), -1, cos.shape[1])
        left, right = heads.chunk(2, dim=-1)
        turned = torch.cat([-right, left], dim=-1)
        return (heads * cos[:, None] + turned * sin[:, None]).reshape(rows.shape)

    def _angles(self, name: str, number: int) -> torch.Tensor | None:
        """Return cosines or sines for each row, which a model may have once for all sequences."""
        run = self.passes[number]
        layout = run.layout
        call = next(iter(run.modules.get(self.sources[name].path, ())), None)
        if call is None or layout is None:
            return None
        tensor = read_tensor(self.sources[name].pick(call)[0], call.dump)
        if len(layout.shape) == 2 and tensor.shape[0] == 1 and layout.shape[0] > 1:
            tensor = tensor.expand(layout.shape[0], *tensor.shape[1:])
        return by_row(tensor, layout)

    def calls(self, name: str) -> Sequence[ModuleCall]:
        """Return the calls of the module of a value in the first pass that has one, one for each rank."""
        if name not in self.sources:
            return ()
        path = self.sources[name].path
        return next((forward_pass.modules[path] for forward_pass in self.passes if path in forward_pass.modules), ())

    def _values(self, name: str) -> Sequence[Value]:
        return [value for call in self.calls(name)[:1] for value in self.sources[name].pick(call)]

    def _dtype(self, name: str) -> str:
        values = self._values(name) if name in self.sources else ()
        return (float_dtype(values[0].dtype) or "") if values else ""


def _is_stream_norm(canonical: Canonical) -> bool:
    tail = canonical.name.rpartition(".")[2]
    return tail in _STREAM_NORMS and (tail != "norm" or canonical.layer is None)


def _floats(call: ModuleCall, group: str) -> list[Value]:
    return [
        placed.value
        for placed in call.values
        if placed.group == group and placed.value.is_tensor and float_dtype(placed.value.dtype)
    ]


def _output(call: ModuleCall) -> Sequence[Value]:
    return _floats(call, "output")[:1]


def _nth_output(number: int) -> Pick:
    return lambda call: _floats(call, "output")[number : number + 1]


def _input(call: ModuleCall) -> Sequence[Value]:
    return _floats(call, "input")[:1]


def _layer_output(call: ModuleCall) -> Sequence[Value]:
    """Return what a layer returns: its result, or in an engine result and residual stream, which are to be added."""
    outputs = _floats(call, "output")[:2]
    return outputs if len(outputs) == 2 and outputs[0].shape == outputs[1].shape else outputs[:1]


def _stream(call: ModuleCall) -> Sequence[Value]:
    """Return the residual stream that a norm was given: an engine's norm adds to it and returns the sum second."""
    outputs, inputs = _floats(call, "output"), _floats(call, "input")
    if len(outputs) == 2 and outputs[0].shape == outputs[1].shape:
        return outputs[1:]
    if len(inputs) >= 2 and inputs[0].shape == inputs[1].shape:
        return inputs[:2]
    return inputs[:1]


ATTENTION_NORM = "input_layernorm"
_ATTENTION = "self_attn"
# The list that a module is in and its place there: the outermost list, as experts lie in a layer.
_ITEM = re.compile(r"((?:[^.\d][^.]*\.)+?)(\d{1,6})(?:\.|$)", re.ASCII)


def compared_names(target: RunValues, golden: RunValues) -> list[str]:
    """Return the values that both runs recorded, in the order in which the golden run computed them."""
    return [name for name in _last_logits(_ordered(golden)) if target.has(name)]


def _last_logits(names: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(names), key=lambda name: name.startswith(LOGITS))


def _ordered(golden: RunValues) -> Iterator[str]:
    for name in golden.sources:
        if name.endswith(f"{_ATTENTION}.o_proj{INPUT}"):
            attention = name.removesuffix(f".o_proj{INPUT}")
            yield from (attention + tail for tail in ROTATED if golden.has(attention + tail))
        yield name


def block_numbers(golden: RunValues) -> dict[str, int]:
    """Return how many blocks of the model each value of a run is behind, in the order in which it computed them.

    A block is attention or MLP of an item of a list of modules: a layer, a block of a vision tower, a layer that
    predicts further tokens. What is in no list lies behind all that ended before it: what contains the layers ends
    after the last of them, as the norm and the head do. The embedding reads tokens alone.
    """
    numbers: dict[str, int] = {}
    before_list: dict[str, int] = {}
    latest = 0
    for name in _last_logits(_ordered(golden)):
        item = _ITEM.match(name)
        if item is None:
            begun = 1 if latest else 0
            numbers[name] = 0 if name.startswith(EMBEDDING) else latest + begun
            continue
        words = name[item.end() :].split(".")
        place = 2 * int(item[2]) + (1 if words[0] in (_ATTENTION, ATTENTION_NORM) else 2)
        numbers[name] = before_list.setdefault(item[1], latest) + place
        latest = max(latest, numbers[name])
    return numbers
