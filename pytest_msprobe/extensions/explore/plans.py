"""What is drawn around a recorded call: a plan, from which its tensors are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from msprobe_hooks.dump.names import Direction
from msprobe_hooks.dump.schema import TensorElement, tensors_of, walk_tensors
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import build_arguments, constrain
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.extensions.explore.sizes import Sizes
from pytest_msprobe.extensions.explore.value_strategies import Drawing, Focus, drawings
from pytest_msprobe.results.outcomes import describe_error
from pytest_msprobe.results.skip_reasons import Skip, SkipReason

# Sizes that are drawn in addition to the smallest and the recorded one.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 33)


@dataclass(frozen=True)
class Plan:
    """One input as drawn: what recorded sizes become, and the drawing of each tensor, gradients that arrive last."""

    sizes: Sizes
    arguments: Mapping[str, Drawing]
    gradients: tuple[Drawing, ...]


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


_ALWAYS: tuple[Focus, ...] = ("signed zero", "subnormal", "tie")


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
