"""State that a forward and backward pass changes, kept and restored for a repetition, and the watched passes."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differing_call import CallCapture, DifferingCall
from msprobe_hooks.extensions.repeated_steps.digests import MOST_PLACES, CallDigests, named_digests, number_digest
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.no_dispatch import NoDispatch

Result = TypeVar("Result")


class TrainingState:
    """Gradients, buffers, random generators and the user's own state as they are when this is made.

    A gradient that is None costs nothing; of others, and of buffers, copies are kept. ``stateful`` are further objects
    that the pass changes: with ``state_dict`` and ``load_state_dict``, or generators of torch.
    """

    def __init__(self, model: nn.Module, stateful: Sequence[Any]) -> None:
        parameters = list(model.parameters())
        with NoDispatch():
            self._gradients = [
                (parameter, parameter.grad, None if parameter.grad is None else parameter.grad.clone())
                for parameter in parameters
            ]
            main = [getattr(parameter, "main_grad", None) for parameter in parameters]
            self._main = [(gradient, gradient.clone()) for gradient in main if isinstance(gradient, Tensor)]
            self._buffers = [(module, name, buffer, buffer.clone()) for module, name, buffer in _buffers(model)]
        self._random = RandomNumbers(model, generators_of(stateful))
        self._loaders = [_loader(candidate) for candidate in stateful if not isinstance(candidate, torch.Generator)]

    def restore(self) -> None:
        """Restore everything, into the same tensors."""
        with NoDispatch():
            for parameter, gradient, values in self._gradients:
                if gradient is not None and values is not None:
                    gradient.copy_(values)
                parameter.grad = gradient
            # Where Megatron accumulates gradients.
            for main, values in self._main:
                main.copy_(values)
            for module, name, buffer, values in self._buffers:
                module._buffers[name] = buffer.copy_(values)
        self._random.restore()
        for load in self._loaders:
            load()
        # What autocast has cast is part of the graph of the pass that is over.
        torch.clear_autocast_cache()


class RandomNumbers:
    """The states of the generators that a pass can draw from: Python's, numpy's, torch's and ``generators``."""

    def __init__(self, model: nn.Module, generators: Sequence[torch.Generator] = ()) -> None:
        self._generators = Generators([*model.parameters(), *model.buffers(), *generators])
        self._numpy, self._python = np.random.get_state(), random.getstate()

    def have_moved(self) -> bool:
        """Return whether numbers were drawn since this was made."""
        return (
            self._generators.have_moved()
            or random.getstate() != self._python
            or not all(map(np.array_equal, np.random.get_state(), self._numpy))
        )

    def restore(self) -> None:
        """Undo what was drawn since."""
        self._generators.restore()
        np.random.set_state(self._numpy)
        random.setstate(self._python)


def generators_of(stateful: Sequence[Any]) -> list[torch.Generator]:
    """Return the generators among objects with a state."""
    return [candidate for candidate in stateful if isinstance(candidate, torch.Generator)]


def require_stateful(stateful: Sequence[Any]) -> None:
    """Raise ConfigError for an object whose state cannot be put back."""
    for candidate in stateful:
        has_state = hasattr(candidate, "state_dict") and hasattr(candidate, "load_state_dict")
        if not (has_state or isinstance(candidate, torch.Generator)):
            raise ConfigError("stateful", type(candidate).__name__, "torch.Generator, an object with load_state_dict")


def _buffers(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                yield module, name, buffer


def _loader(holder: Any) -> Callable[[], None]:
    state = copy.deepcopy(holder.state_dict())
    # A GradScaler has no part of its state in its state_dict: whether it has unscaled the gradients of this step.
    unscaled = copy.deepcopy(dict(getattr(holder, "_per_optimizer_states", {})))

    def load() -> None:
        holder.load_state_dict(copy.deepcopy(state))
        if hasattr(holder, "_per_optimizer_states"):
            holder._per_optimizer_states.clear()
            holder._per_optimizer_states.update(copy.deepcopy(unscaled))

    return load


@dataclass(frozen=True, slots=True)
class WatchedPass:
    """The digests of a pass by name, as of the function's result, gradients and buffers, and those of its calls."""

    values: dict[str, int]
    collector: CallDigests | None
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
        differing_results: dict[int, set[int]] = {}
        if self.calls == other.calls or self.collector is None or other.collector is None:
            return differing_results
        operators = zip(self.collector.operators, other.collector.operators, strict=False)
        for place, (operator, of_other) in enumerate(operators):
            mine, others = self.calls[place], other.calls[place]
            if operator is not of_other:
                break
            if mine != others:
                results = (number for number, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b)
                differing = {number for number in results if (operator, number) not in left_out}
                if differing or len(mine) != len(others):
                    differing_results[place] = differing
        return differing_results


def watched_pass(
    function: Callable[[], Result],
    values_of: Callable[[Result], dict[str, int]],
    collector: CallDigests | None,
    random_of: Callable[[], RandomNumbers],
) -> tuple[WatchedPass, Result]:
    """Make a pass and return it with what the function returned; ``collector`` takes the digests of its calls."""
    with collector.following() if isinstance(collector, CallCapture) else collector or nullcontext():
        result = function()
    values = values_of(result)
    with NoDispatch():
        return WatchedPass(values, collector, [] if collector is None else collector.read(), random_of()), result


def pass_digests(model: nn.Module, result: Any) -> dict[str, int]:
    """Return the digests of what a pass leaves, by name: what it returned, gradients and buffers."""
    with NoDispatch():
        numbers = ((f"result {place}", number_digest(leaf)) for place, leaf in enumerate(tree_leaves(result)))
        return named_digests(_tensors(model, result)) | {name: one for name, one in numbers if one is not None}


@dataclass(frozen=True, slots=True)
class Passes:
    """The three passes of a step; ``not_seen`` says why their calls were not compared, if they were not.

    ``calls`` are those that differ in the first two: which results, by place.
    """

    first: WatchedPass
    second: WatchedPass
    third: WatchedPass
    calls: dict[int, set[int]]
    not_seen: str


@dataclass(frozen=True, slots=True)
class Located:
    """The first call that differs: its place, itself, and whether that is due to what another process sent before."""

    place: int | None = None
    call: DifferingCall | None = None
    is_received: bool = False

    @property
    def is_origin(self) -> bool:
        """Return whether this process has computed the difference."""
        return self.place is not None and not self.is_received


def located(passes: Passes, undefined: set[tuple[Any, int]]) -> Located:
    """Return the first call that differs, other than in memory that it has not written to; that is added."""
    first, second, capture = passes.first.collector, passes.second.collector, passes.third.collector
    if first is None or second is None or not isinstance(capture, CallCapture):
        return Located()
    for place, results in [*passes.calls.items()][:MOST_PLACES]:
        call = capture.captured.get(place)
        if call is not None and results:
            undefined.update((call.operator, number) for number in call.undefined_results() & results)
            results = {number for number in results if (call.operator, number) not in undefined}
        if call is None or results:
            one, other = first.arrivals, second.arrivals
            is_received = one is not None and other is not None and one.differ(other, place)
            return Located(place, call, is_received)
    return Located()


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
