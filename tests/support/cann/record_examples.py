"""Record the example calls of operators on a card; the arguments are a folder, a task and names of operators."""

from __future__ import annotations

import re
import sys
from typing import Any

import torch
import torch_npu  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

import msprobe_hooks
from tests.support.cann.example_call import Call
from tests.support.cann.examples import all_examples

_NO_GRADIENT_OF = re.compile(r"not differentiable with respect to argument '(\w+)'")


def run(operator: str, call: Call) -> tuple[Any, list[bool]]:
    """Run a call on the current card, and its gradient where there is one.

    Return what it returned, and which of the tensors among its arguments have a gradient then. Arguments that torch_npu
    does not differentiate are found by its own words.
    """
    packet = getattr(torch.ops.npu, operator)
    function = getattr(torch_npu, operator, packet)
    names = [argument.name for argument in getattr(packet, packet.overloads()[0])._schema.arguments]
    without_gradient: set[str] = set()
    while True:
        args, kwargs = _on_card(call, names, without_gradient)
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        try:
            output = function(*args, **kwargs)
        except RuntimeError as error:
            found = _NO_GRADIENT_OF.search(str(error))
            if not found or found[1] in without_gradient:
                raise
            without_gradient.add(found[1])
            continue
        results = output if isinstance(output, (tuple, list)) else [output]
        outputs = [each for each in results if isinstance(each, Tensor) and each.requires_grad]
        if outputs:
            # Equal gradients would cancel in what a softmax gives.
            torch.autograd.backward(outputs, [_uneven(each) for each in outputs])
        return output, [leaf.is_leaf and leaf.grad is not None for leaf in leaves]


def _uneven(output: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return torch.linspace(-1, 2, output.numel()).sin().reshape(output.shape).to(output.dtype).to(output.device)


def _on_card(call: Call, names: list[str], without_gradient: set[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments on the card; what brings them there is not recorded."""

    def put(argument: Any, name: str) -> Any:
        differentiates = call.differentiate and name not in without_gradient
        return tree_map_only(
            Tensor, lambda x: x.npu().requires_grad_(differentiates and x.is_floating_point()), argument
        )

    with torch._C.DisableTorchFunction():
        args = tuple(put(argument, name) for argument, name in zip(call.args, names, strict=False))
        return args, {name: put(argument, name) for name, argument in call.kwargs.items()}


def main(folder: str, task: str, *operators: str) -> None:
    """Record in one dump the examples of these operators, of all where none is named, that this torch_npu has."""
    calls = [
        (operator, make(torch.Generator().manual_seed(0)))
        for operator, _, make in all_examples()
        if not operators or operator in operators
    ]
    examples_of_all = [(operator, call) for operator, call in calls if hasattr(torch.ops.npu, operator)]
    with msprobe_hooks.record(folder, task=task):
        for operator, call in examples_of_all:
            run(operator, call)


if __name__ == "__main__":
    main(*sys.argv[1:])
