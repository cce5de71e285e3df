"""One forward and backward pass of a watched step, and the digests of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from msprobe_hooks.extensions.repeated_steps.call_digests import CallDigests
from msprobe_hooks.extensions.repeated_steps.differing_call import CallCapture
from msprobe_hooks.extensions.repeated_steps.digests import named_digests, number_digest
from msprobe_hooks.extensions.repeated_steps.training_state import RandomNumbers
from msprobe_hooks.torch.no_dispatch import NoDispatch


@dataclass(frozen=True, slots=True)
class WatchedPass:
    """The digests of a pass by name: of the function's result, gradients and buffers; ``calls`` are those of calls."""

    values: dict[str, int]
    seen: CallDigests | None
    calls: list[tuple[int, ...]]
    random: RandomNumbers

    def differing(self, other: WatchedPass) -> list[str]:
        """Return the names of what differs in another pass."""
        mine, others = self.values, other.values
        return [name for name in {**mine, **others} if mine.get(name) != others.get(name)]

    def differing_calls(self, other: WatchedPass, left_out: Container[tuple[Any, int]]) -> dict[int, set[int]]:
        """Return which results of which calls differ in another pass, by the places of the calls.

        Until they make other calls, and without the results that are ``left_out`` by operator and place.
        """
        found: dict[int, set[int]] = {}
        if self.calls == other.calls or self.seen is None or other.seen is None:
            return found
        operators = zip(self.seen.operators, other.seen.operators, strict=False)
        for place, (operator, of_other) in enumerate(operators):
            mine, others = self.calls[place], other.calls[place]
            if operator is not of_other:
                break
            if mine != others:
                results = (number for number, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b)
                differing = {number for number in results if (operator, number) not in left_out}
                if differing or len(mine) != len(others):
                    found[place] = differing
        return found


def watched_pass(
    function: Callable[[], Any], model: nn.Module, seen: CallDigests | None, random_of: Callable[[], RandomNumbers]
) -> tuple[WatchedPass, Any]:
    """Make a pass and return it with what the function returned; ``seen`` collects the digests of its calls."""
    with seen.following() if isinstance(seen, CallCapture) else seen or nullcontext():
        result = function()
    with NoDispatch():
        values = named_digests(_tensors(model, result))
        numbers = ((f"result {place}", number_digest(each)) for place, each in enumerate(tree_leaves(result)))
        values |= {name: number for name, number in numbers if number is not None}
        return WatchedPass(values, seen, [] if seen is None else seen.read(), random_of()), result


def parameter_digests(model: nn.Module) -> dict[str, int]:
    """Return the digests of a model's parameters by name."""
    with NoDispatch():
        return named_digests(model.named_parameters())


def _tensors(model: nn.Module, result: Any) -> Iterator[tuple[str, Tensor]]:
    for place, leaf in enumerate(tree_leaves(result)):
        if isinstance(leaf, Tensor):
            yield f"result {place}", leaf
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield f"gradient of {name}", parameter.grad
        if isinstance(main := getattr(parameter, "main_grad", None), Tensor):
            yield f"main gradient of {name}", main
    for name, buffer in model.named_buffers():
        yield f"buffer {name}", buffer
