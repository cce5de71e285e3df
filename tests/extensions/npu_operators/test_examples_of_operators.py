"""Example calls of NPU operators, recorded and replayed on cards that compute by definitions of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from pytest_msprobe.engine.replay.call import Call as RecordedCall
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.support.cann.example_call import Call
from tests.support.cann.examples import (
    activation,
    common_layers,
    convolutions,
    experts,
    losses,
    norms,
    rotations,
    routing,
    routing_map,
    tensors,
)
from tests.support.cann.operators import independent_definition
from tests.support.dumps.recorder import Recorder, element

pytestmark = pytest.mark.slow

FAMILIES = (
    activation, common_layers, convolutions, experts, losses, norms, rotations, routing, routing_map, tensors,
)  # fmt: skip
EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    name: make for family in FAMILIES for name, make in family.EXAMPLES.items()
}
REFERENCES = ReferenceRegistry()


def definition(name: str) -> Callable[..., Any]:
    return independent_definition(name.partition("-")[0])


def recorded(recorder: Recorder, name: str) -> RecordedCall:
    """The record of an example by its own definition, as a card would have computed it."""
    api = name.partition("-")[0]
    example = EXAMPLES[name](torch.Generator().manual_seed(1))
    forward = {"input_args": element(list(example.args)), "input_kwargs": element(example.kwargs)}
    args, kwargs = tree_map_only(Tensor, torch.clone, (example.args, example.kwargs))
    output = definition(name)(*args, **kwargs)
    outputs = output if isinstance(output, (list, tuple)) else [output]
    kind = "NPU" if REFERENCES.get(f"NPU.{api}") else "Aten"
    return recorder.keep(f"{kind}.{api}.0", {**forward, "output": element(list(outputs))})


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_card_with_a_definition_of_its_own_passes(
    name: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    def compute(func: Any, args: Any, kwargs: Any) -> Any:
        return definition(name)(*args, **kwargs)

    made = recorded(recorder, name)
    for seed in range(3):
        result = check(made, device=device_that(compute), seed=seed).forward
        assert result.outcome == "pass", result.reason


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not name.startswith("npu_scatter_list_")])
def test_a_card_that_turns_rows_around_is_found(name: str, recorder: Recorder, check: Any, device_that: Any) -> None:
    def turned(tensor: Tensor) -> Tensor:
        return tensor.flip(tuple(range(tensor.dim()))) if tensor.dim() else tensor + 1

    def compute(func: Any, args: Any, kwargs: Any) -> Any:
        return map_tensors(turned, definition(name)(*args, **kwargs))

    assert check(recorded(recorder, name), device=device_that(compute)).forward.outcome == "fail"
