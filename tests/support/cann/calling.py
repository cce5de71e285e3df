"""Examples called on a card: torch_npu's operator, and gradients of what it returns."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.support.cann import examples
from tests.support.cann.example_call import Call

_NOT_DIFFERENTIABLE = re.compile(r"not differentiable with respect to argument '(\w+)'")

Example = Callable[[torch.Generator], Call]


def all_examples() -> dict[str, Example]:
    """Return the examples of every family by name, ``npu_x`` or ``npu_x-variant``."""
    modules = (import_module(f"{examples.__name__}.{each.name}") for each in pkgutil.iter_modules(examples.__path__))
    return {name: example for module in modules for name, example in module.EXAMPLES.items()}


def call_on_card(name: str, example: Example) -> Any:
    """Call an example's operator with its tensors on the current card, differentiate it if it says so, and return it.

    Arguments by which torch_npu differentiates nothing get no gradient. Raises what the operator raises.
    """
    plain: set[str] = set()
    while True:
        call = example(torch.Generator().manual_seed(0))
        try:
            return _call(name, call, plain)
        except RuntimeError as error:
            refused = _NOT_DIFFERENTIABLE.search(str(error))
            if refused is None or refused[1] in plain:
                raise
            plain.add(refused[1])


def failures() -> Iterator[tuple[str, str]]:
    """Call every example on the current card, and return the name and error of each that fails."""
    for name, example in all_examples().items():
        try:
            call_on_card(name, example)
            torch.npu.synchronize()  # type: ignore[attr-defined,unused-ignore]
        except Exception as error:
            yield name, f"{type(error).__name__}: {error}"


def _operator(name: str) -> Callable[..., Any]:
    """Return an operator as torch_npu offers it, else with all its overloads."""
    import torch_npu

    base = name.partition("-")[0]
    found: Callable[..., Any] = getattr(torch_npu, base, None) or getattr(torch.ops.npu, base)
    return found


def _call(name: str, call: Call, plain: set[str]) -> Any:
    operator, packet = _operator(name), getattr(torch.ops.npu, name.partition("-")[0])
    names = [argument.name for argument in getattr(packet, packet.overloads()[0])._schema.arguments]

    def on_card(name: str, value: Any) -> Any:
        return tree_map_only(Tensor, lambda tensor: _moved(tensor, call.differentiate and name not in plain), value)

    args = [on_card(name, value) for name, value in zip(names, call.args, strict=False)]
    kwargs = {name: on_card(name, value) for name, value in call.kwargs.items()}
    result = operator(*args, **kwargs)
    if call.differentiate:
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
        torch.autograd.backward(results, [torch.ones_like(leaf) for leaf in results])
    return result


def _moved(tensor: Tensor, differentiate: bool) -> Tensor:
    moved = tensor.npu()  # type: ignore[attr-defined,unused-ignore]
    return moved.requires_grad_() if differentiate and moved.is_floating_point() else moved
