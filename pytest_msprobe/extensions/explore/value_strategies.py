"""Strategies of Hypothesis for tensors: special values, the recorded range and around it, smaller shapes, plans.

A drawing does not depend on the tensor's shape, so that shapes and values shrink independently of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from hypothesis import strategies as st

from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS
from msprobe_hooks.dump.names import Direction
from msprobe_hooks.dump.schema import TENSOR_TYPES, TensorElement, tensors_of, walk_tensors
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import build_arguments, constrain
from pytest_msprobe.engine.replay.inputs.random_tensors import random_tensor
from pytest_msprobe.engine.replay.inputs.recorded_statistics import finite_range, integer_range
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.engine.values.strides import lay_out
from pytest_msprobe.results.outcomes import Skip, SkipReason, describe_error

Layout = Literal["contiguous", "transposed", "gapped"]

Focus = Literal["", "signed zero", "subnormal", "tie", "nan", "infinity", "largest"]

# Simplest first: what fails is shrunk towards the front.
LAYOUTS: tuple[Layout, ...] = ("contiguous", "transposed", "gapped")
_MOST_VALUES = 12  # a choice: they repeat over the tensor, and a report names each
_SEEDS = st.integers(0, 2**16)

# Sizes that are drawn in addition to the smallest and the recorded one.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 33)

# What vector units, tiles and lines of memory hold, and what indices of 16 bits count. A choice: 128 is a multiple of
# the others, so that 129 is just over a multiple of each.
_UNITS = (8, 16, 32, 64, 128)
_COUNTED = 2**16

_ALWAYS: tuple[Focus, ...] = ("signed zero", "subnormal", "tie")

Sizes = Mapping[int, int]

# A choice: sizes that are tried, from the smallest up; each costs runs of the call.
_TRIED = (1, 2, 3, 4, 8)


@dataclass(frozen=True)
class Drawing:
    """Way in which the elements of a tensor are drawn.

    ``values`` are repeated until the tensor is full. Without them elements are random, for ``seed``: whole numbers from
    -2 to 2 (``whole``), or like the recorded ones.
    """

    values: tuple[Any, ...] = ()
    seed: int = 0
    whole: bool = False
    layout: Layout = "contiguous"

    def tensor(self, element: TensorElement) -> torch.Tensor:
        """Return a CPU tensor of the element's shape and dtype."""
        dtype = dtype_named(element.dtype)
        return _laid_out(self._elements(element, dtype), self.layout)

    def _elements(self, element: TensorElement, dtype: torch.dtype) -> torch.Tensor:
        count = math.prod(element.shape)
        if self.values:
            repeated = (self.values * (count // len(self.values) + 1))[:count]
            return _cast(repeated, dtype).view(element.shape)
        if self.whole:
            generator = torch.Generator().manual_seed(self.seed)
            return torch.randint(-2, 3, element.shape, generator=generator).to(dtype)
        return random_tensor(element, self.seed)


def _cast(values: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.tensor(values, dtype=torch.complex128).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor(values, dtype=torch.float64).to(dtype)
    return torch.tensor(values, dtype=dtype)


def _laid_out(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    if layout == "contiguous" or not tensor.dim() or not tensor.numel():
        return tensor
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return lay_out(tensor, [2 * step for step in tensor.stride()])


def drawings(element: TensorElement, *, focus: Focus) -> st.SearchStrategy[Drawing]:
    """Return the strategy for a recorded tensor; ``focus`` names the special values that are mixed in."""
    dtype = dtype_named(element.dtype)
    values = st.lists(_values(element, dtype, focus=focus), min_size=1, max_size=_MOST_VALUES).map(tuple)
    cycles = st.builds(Drawing, values=values)
    ranges = st.builds(Drawing, seed=_SEEDS)
    is_number = dtype.is_floating_point or dtype.is_complex
    wholes = [st.builds(Drawing, seed=_SEEDS, whole=st.just(True))] if is_number else []
    # Random elements are never special ones.
    filled = [cycles] if focus and is_number else [cycles, *wholes, ranges]
    if element.type == "numpy.ndarray":
        return st.one_of(filled)
    layouts = st.one_of(st.just(LAYOUTS[0]), st.sampled_from(LAYOUTS))
    return st.builds(lambda drawing, layout: replace(drawing, layout=layout), st.one_of(filled), layouts)


def _values(element: TensorElement, dtype: torch.dtype, *, focus: Focus) -> st.SearchStrategy[Any]:
    if dtype is torch.bool:
        return st.booleans()
    if dtype.is_complex:
        part = _floats(element, dtype.to_real(), focus=focus)
        return st.builds(complex, part, part)
    if dtype.is_floating_point:
        return _floats(element, dtype, focus=focus)
    # Whole numbers are indices, lengths and classes more often than not: only the recorded range is safe.
    return st.integers(*integer_range(element, dtype))


def _floats(element: TensorElement, dtype: torch.dtype, *, focus: Focus) -> st.SearchStrategy[float]:
    low, high = (bound + 0.0 for bound in finite_range(element, dtype))  # -0.0 becomes 0.0
    reach = min(2 * max(abs(low), abs(high), 1.0), torch.finfo(dtype).max)
    kinds = [
        st.integers(-4, 4).map(float),
        st.integers(-4, 4).map(lambda whole: whole + 0.5),
        st.floats(low, high),
        st.floats(-reach, reach),
    ]
    return st.one_of([st.sampled_from(special_values(dtype)[focus]), *kinds[:2]] if focus else kinds)


def special_values(dtype: torch.dtype) -> dict[Focus, tuple[float, ...]]:
    """Return the values of a float dtype at which implementations differ, the simplest of each kind first."""
    limits = torch.finfo(dtype)
    smallest = limits.smallest_normal * limits.eps
    return {
        "signed zero": (0.0, -0.0),
        "subnormal": (smallest, -smallest, limits.smallest_normal - smallest, limits.smallest_normal),
        # Odd last bits: what is halved, added to one or rounded to fewer bits meets a tie.
        "tie": (1 + limits.eps, 1 + 3 * limits.eps, limits.eps / 2, 1 / limits.eps + 1),
        "nan": (math.nan,),
        "infinity": (math.inf, -math.inf),
        "largest": (limits.max, -limits.max),
    }


@dataclass(frozen=True)
class Plan:
    """One input as drawn: what recorded sizes become, and the drawing of each tensor, gradients that arrive last.

    ``why`` says in words why these sizes are tried; empty where they are drawn.
    """

    sizes: Sizes
    arguments: Mapping[str, Drawing]
    gradients: tuple[Drawing, ...]
    why: str = ""


def plans_around(call: Call, smallest: Sizes, direction: Direction, *, rounds_once: bool) -> st.SearchStrategy[Plan]:
    """Return the strategy for plans around a call whose sizes can be shrunk so far.

    ``rounds_once`` says that what the call returns is computed element by element.
    """
    forward, backward = call.forward, call.backward
    elements = dict((*walk_tensors(forward.args, "args"), *walk_tensors(forward.kwargs, "kwargs")))
    grad_outputs = tensors_of(backward.grad_outputs) if backward is not None and direction == "backward" else []

    # Half of the plans have no special values.
    special = _agreed(operation(call.name.api), rounds_once=rounds_once)
    nothing: tuple[Focus, ...] = ("",)
    focuses = nothing * len(special) + special
    strategies = {
        focus: {path: drawings(element, focus=focus) for path, element in elements.items()} for focus in focuses
    }
    gradients = {focus: [drawings(element, focus=focus) for element in grad_outputs] for focus in focuses}

    @st.composite
    def plans(draw: st.DrawFn) -> Plan:
        sizes = {size: draw(st.sampled_from(_sizes(size, low))) for size, low in smallest.items()}
        if sizes and draw(st.integers(0, 15)) == 15:
            sizes[draw(st.sampled_from(sorted(sizes)))] = 0
        focus = draw(st.sampled_from(focuses))
        arguments = {path: draw(strategy) for path, strategy in strategies[focus].items()}
        return Plan(sizes, arguments, tuple(map(draw, gradients[focus])))

    return plans()


def plans_just_over(call: Call, smallest: Sizes) -> list[Plan]:
    """Return plans with one size each just over 128, and just over 2^16 elements; the others as small as found."""
    by_unit = [plans_over_units(smallest, size)[-1] for size in smallest]
    return [*by_unit, *(plan for size in smallest if (plan := _over_counted(call, smallest, size)) is not None)]


def plans_over_units(smallest: Sizes, size: int) -> list[Plan]:
    """Return plans in which one size is just over a multiple of 8, 16, 32, 64 and 128."""
    return [_aimed(smallest, size, unit + 1, f"just over a multiple of {unit}") for unit in _UNITS]


def _over_counted(call: Call, smallest: Sizes, size: int) -> Plan | None:
    """Return the plan in which the first of the tensors and results to have this size is just over 2^16 elements."""
    reached = []
    for shape in _shapes(call):
        if times := shape.count(size):
            others = math.prod(smallest.get(other, other) for other in shape if other != size)
            reached.append(math.floor((_COUNTED / max(others, 1)) ** (1 / times) + 1e-9) + 1)  # roots are not exact
    larger = min(reached, default=0)
    return _aimed(smallest, size, larger, "just over 2^16 elements") if larger > max(_UNITS) + 1 else None


def _shapes(call: Call) -> list[tuple[int, ...]]:
    forward = call.forward
    return [tuple(tensor.shape) for tensor in tensors_of([*forward.args, *forward.kwargs.values(), forward.output])]


def elements_of(call: Call, sizes: Sizes) -> int:
    """Return how many elements the tensors and results of a recorded call have with other sizes."""
    return sum(math.prod(sizes.get(size, size) for size in shape) for shape in _shapes(call))


def _aimed(smallest: Sizes, size: int, larger: int, why: str) -> Plan:
    return Plan({**smallest, size: larger}, {}, (), f"size {size} as {larger}, {why}")


def drawn_tensors(call: Call, plan: Plan) -> dict[str, torch.Tensor]:
    """Return the tensors of a plan by path, mended as drawn ones are. Raises Skip where nothing can be made of it."""

    def source(element: TensorElement, path: str) -> torch.Tensor:
        return plan.arguments.get(path, Drawing()).tensor(element)

    try:
        drawn = build_arguments(call, seed=0, real_data=False, source=source, memory="given")
        args, kwargs = constrain(call.name.api, drawn.args, drawn.kwargs, seed=0)
    except REFUSALS as error:
        # The rules for drawn tensors know no sizes of zero.
        raise Skip(SkipReason.REJECTED_INPUTS, describe_error(error)) from None
    return dict(replace(drawn, args=args, kwargs=kwargs).tensors())


def _agreed(name: str, *, rounds_once: bool) -> tuple[Focus, ...]:
    """Return the special values that right implementations of an operation agree on.

    Padding and masks meet zeros in some algorithms and nothing in others. Sums overflow, or meet infinities of both
    signs on their way, as the order of summation will have it.
    """
    if "conv" in name or "attention" in name:
        return _ALWAYS
    return (*_ALWAYS, "nan", "infinity", "largest") if rounds_once else (*_ALWAYS, "nan")


def _sizes(size: int, smallest: int) -> list[int]:
    return [smallest, *(other for other in _SIZES if smallest < other < size), size]


def recorded_sizes(call: Call) -> list[int]:
    """Return the sizes over 1 that the tensors of a call have, the largest first; none where shapes must stay."""
    if op_info(call.name.api).index:
        # Lists of whole numbers are positions, and a shape decides how the record is read.
        return []
    tensors = tensors_of([*call.forward.args, *call.forward.kwargs.values()])
    return sorted({size for tensor in tensors for size in tensor.shape if size > 1}, reverse=True)


def smallest_sizes(sizes: list[int], accepts: Callable[[Sizes], bool]) -> dict[int, int]:
    """Return, for each size that can be smaller, the smallest that a call accepts with the others as small as found."""
    for small in _TRIED:
        together = {size: min(small, size) for size in sizes}
        if accepts(together):
            return {size: to for size, to in together.items() if to < size}
    reduced: dict[int, int] = {}
    for size in sizes:
        tried = (small for small in _TRIED if small < size)
        smallest = next((small for small in tried if accepts({**reduced, size: small})), None)
        if smallest is not None:
            reduced[size] = smallest
    return reduced


def resized(body: Mapping[str, Any], api: str, sizes: Sizes) -> dict[str, Any]:
    """Return the body of a forward record with other sizes; statistics that belong to the former shapes are dropped."""
    bare = op_info(api).bare_sizes

    def element(value: Any, *, nested: bool) -> Any:
        if isinstance(value, list):
            return [element(item, nested=True) for item in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        if kind in TENSOR_TYPES:
            return {**value, "shape": _mapped(value["shape"], sizes), "Mean": None, "Norm": None}
        if kind == "torch.Size":
            return {**value, "value": _mapped(value["value"], sizes)}
        if kind == "int" and (nested or bare):
            return {**value, "value": sizes.get(value["value"], value["value"])}
        if isinstance(kind, str):
            return value
        return {key: element(item, nested=True) for key, item in value.items()}

    args = [element(item, nested=False) for item in body.get("input_args") or []]
    kwargs = {key: element(item, nested=False) for key, item in (body.get("input_kwargs") or {}).items()}
    return {**body, "input_args": args, "input_kwargs": kwargs}


def without_layouts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a forward record without how its tensors lay in memory: inputs lie as they are drawn."""

    def element(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(element, value))
        if not isinstance(value, dict):
            return value
        is_tensor = value.get("type") in TENSOR_TYPES
        return {key: element(item) for key, item in value.items() if not (is_tensor and key in LAYOUT_KEYS)}

    return {key: element(value) if key in ("input_args", "input_kwargs") else value for key, value in body.items()}


def _mapped(shape: list[int], sizes: Sizes) -> list[int]:
    return [sizes.get(size, size) for size in shape]
