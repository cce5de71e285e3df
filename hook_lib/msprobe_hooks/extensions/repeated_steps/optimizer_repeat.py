"""The step of an optimizer, computed twice from the same state and compared bit by bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differences import Report
from msprobe_hooks.extensions.repeated_steps.digests import named_digests, number_digest
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import local_part

#: What compares a finished step: called with the optimizer's name, its state before, what steps again, and its values.
Compare = Callable[[str, "OptimizerState", Callable[[], None], Callable[[], dict[str, int]]], None]


class OptimizerState:
    """Parameters, gradients, settings and state of an optimizer as they are when this is made; copies are kept."""

    def __init__(self, optimizer: torch.optim.Optimizer, restore_random: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._restore_random = restore_random
        with NoDispatch():
            self._parameters = [
                (parameter, _copied(parameter), parameter.grad, _copied(parameter.grad))
                for parameter in _parameters(optimizer)
            ]
            self._state = {
                key: {name: (value, _copied(value)) for name, value in state.items()}
                for key, state in optimizer.state.items()
            }
            self._groups = [
                {name: (value, _copied(value)) for name, value in group.items() if name != "params"}
                for group in optimizer.param_groups
            ]

    def restore(self) -> None:
        """Restore everything, into the same tensors."""
        with NoDispatch():
            for parameter, values, gradient, gradient_values in self._parameters:
                _restored(parameter, values)
                parameter.grad = _restored(gradient, gradient_values)
            state = self._optimizer.state
            for key in [key for key in state if key not in self._state]:
                del state[key]
            for key, values_by_name in self._state.items():
                state[key].clear()
                state[key].update({name: _restored(*value) for name, value in values_by_name.items()})
            for group, settings in zip(self._optimizer.param_groups, self._groups, strict=True):
                group.update({name: _restored(*value) for name, value in settings.items()})
        self._restore_random()


def optimizer_digests(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, int]:
    """Return the digests of an optimizer's parameters and state; ``names`` are those of parameters by their id."""
    with NoDispatch():
        values = list(_values(optimizer, names))
        digests = named_digests((name, value) for name, value in values if isinstance(value, Tensor))
        numbers = ((name, number_digest(value)) for name, value in values if not isinstance(value, Tensor))
        return digests | {name: number for name, number in numbers if number is not None}


class OptimizerHooks:
    """Has the steps of optimizers compared that follow on ``arm``: each optimizer's next one."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        model: nn.Module,
        restore_random_of: Callable[[], Callable[[], None]],
        report: Report,
        compare: Compare,
    ) -> None:
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._restore_random_of = restore_random_of
        self._report = report
        self._compare = compare
        self._armed: set[int] = set()
        self._before: dict[int, OptimizerState] = {}
        # A class may step by the step of its parent, which calls the hooks again.
        self._depth = 0
        self._optimizers = tuple(optimizers)
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._begin)
            optimizer.register_step_post_hook(self._end)
            hooks: Any = optimizer._optimizer_step_post_hooks
            # Before the hooks of others, which may change parameters or keep a mean of them.
            hooks.move_to_end(next(reversed(hooks)), last=False)

    def arm(self, *, is_watched: bool) -> None:
        """Compare the next step of each optimizer, or none."""
        self._armed = {id(optimizer) for optimizer in self._optimizers} if is_watched else set()
        self._before.clear()
        self._depth = 0

    def _begin(self, optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._depth += 1
        if id(optimizer) not in self._armed:
            return
        self._armed.discard(id(optimizer))
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            # It computes the gradients itself.
            self._report.closures += 1
            return
        self._before[id(optimizer)] = OptimizerState(optimizer, self._restore_random_of())

    def _end(self, optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._depth -= 1
        if self._depth or id(optimizer) not in self._before:
            return
        before = self._before.pop(id(optimizer))
        step = _without_hooks(type(optimizer).step)

        def again() -> None:
            step(*args, **kwargs)

        self._compare(type(optimizer).__name__, before, again, lambda: optimizer_digests(optimizer, self._names))


def optimizers_of(optimizer: Any) -> tuple[torch.optim.Optimizer, ...]:
    """Return one or several optimizers as a tuple. Raises ConfigError for anything else."""
    optimizers = () if optimizer is None else tuple(optimizer) if isinstance(optimizer, (list, tuple)) else (optimizer,)
    for one in optimizers:
        if not isinstance(one, torch.optim.Optimizer):
            raise ConfigError("optimizer", type(one).__name__, "a torch.optim.Optimizer, or several")
    return optimizers


def _without_hooks(step: Any) -> Callable[..., Any]:
    """Return the step of an optimizer's class below what calls the hooks."""
    while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    function: Callable[..., Any] = step
    return function


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _values(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    for number, parameter in enumerate(_parameters(optimizer)):
        name = names.get(id(parameter), f"parameter {number} of the optimizer")
        yield name, parameter
        # Parameters without a gradient have no state.
        if parameter in optimizer.state:
            for key, value in optimizer.state[parameter].items():
                yield f"{key} of {name}", value


def _copied(value: Any) -> Any:
    return local_part(value).detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _restored(value: Any, former: Any) -> Any:
    """Return a value as it was formerly: the same tensor, or a copy of another object."""
    if isinstance(value, Tensor):
        local_part(value).detach().copy_(former)
        return value
    return copy.deepcopy(former)
