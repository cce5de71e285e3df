"""What a forward and backward pass changes besides its result: kept, to be put back before the pass is made again."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.no_dispatch import NoDispatch


class TrainingState:
    """Gradients, buffers, random generators and the user's own state as they are when this is made.

    A gradient that is None costs nothing; of others, and of buffers, copies are kept. ``stateful`` are further objects
    that the pass changes: with ``state_dict`` and ``load_state_dict``, or generators of torch.
    """

    def __init__(self, model: nn.Module, stateful: Sequence[Any]) -> None:
        parameters = list(model.parameters())
        with NoDispatch():
            self._gradients = [
                (each, each.grad, None if each.grad is None else each.grad.clone()) for each in parameters
            ]
            main = [getattr(each, "main_grad", None) for each in parameters]
            self._main = [(each, each.clone()) for each in main if isinstance(each, Tensor)]
            self._buffers = [(module, name, buffer, buffer.clone()) for module, name, buffer in _buffers(model)]
        self._random = RandomNumbers(model, generators_of(stateful))
        self._loaders = [_loader(each) for each in stateful if not isinstance(each, torch.Generator)]

    def restore(self) -> None:
        """Put everything back, into the same tensors."""
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
    return [each for each in stateful if isinstance(each, torch.Generator)]


def require_stateful(stateful: Sequence[Any]) -> None:
    """Raise ConfigError for an object whose state cannot be put back."""
    for each in stateful:
        has_state = hasattr(each, "state_dict") and hasattr(each, "load_state_dict")
        if not (has_state or isinstance(each, torch.Generator)):
            raise ConfigError("stateful", type(each).__name__, "torch.Generator, an object with load_state_dict")


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
