"""State that a pass or an optimizer's step changes, kept and restored for a repetition, and the hooks on such steps."""

from __future__ import annotations

import copy
import functools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differences import number_digest
from msprobe_hooks.extensions.repeated_steps.digests import CallDigests, named_digests
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import local_part


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


#: What compares a finished step: called with the optimizer, its state before, what steps again, and the calls of the
#: step where they were seen.
Compare = Callable[[torch.optim.Optimizer, "OptimizerState", Callable[[], None], "OwnStep | None"], None]


class OptimizerState:
    """Parameters, gradients, settings and state of an optimizer as they are when this is made; copies are kept."""

    def __init__(self, optimizer: torch.optim.Optimizer, restore_random: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._restore_random = restore_random
        with NoDispatch():
            self._parameters = [
                (parameter, _copied(parameter), parameter.grad, _copied(parameter.grad))
                for parameter in parameters_of(optimizer)
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


class OwnStep(CallDigests):  # type: ignore[no-untyped-call]
    """Within, collects the digests of the step that an optimizer makes by itself, between its hooks."""

    #: Whether what runs is the step itself.
    is_on = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator and take the digests of its results if it is the optimizer's."""
        if self.is_on:
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


class OptimizerHooks:
    """Has the steps of optimizers compared that follow on ``arm``: each optimizer's next one."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        restore_random_of: Callable[[], Callable[[], None]],
        note_closure: Callable[[], None],
        compare: Compare,
        collector: Callable[[], OwnStep] | None,
    ) -> None:
        self._restore_random_of = restore_random_of
        self._note_closure = note_closure
        self._compare = compare
        # Makes what collects the calls of a step; None where they are not looked at.
        self._collector = collector
        self._own: dict[int, OwnStep] = {}
        self._armed: set[int] = set()
        self._before: dict[int, OptimizerState] = {}
        # The optimizers in whose steps something was compiled, which would be run uncompiled where calls are seen.
        self._compiled: set[int] = set()
        self._frames = 0
        # A class may step by the step of its parent, which calls the hooks again.
        self._depth = 0
        self._optimizers = tuple(optimizers)
        for optimizer in optimizers:
            if collector is not None:
                self._follow(optimizer)
            optimizer.register_step_pre_hook(self._begin)
            optimizer.register_step_post_hook(self._end)
            hooks: Any = optimizer._optimizer_step_post_hooks
            # Before the hooks of others, which may change parameters or keep a mean of them.
            hooks.move_to_end(next(reversed(hooks)), last=False)

    def arm(self, *, is_watched: bool, in_any: Callable[[bool], bool] | None) -> None:
        """Compare the next step of each optimizer, or none; all processes do, and ``in_any`` asks them if there are."""
        self._armed = {id(optimizer) for optimizer in self._optimizers} if is_watched else set()
        if is_watched and in_any is not None and in_any(bool(self._compiled)):
            # Where one process compiles and another has nothing to compile, both make as many steps.
            self._compiled |= self._armed
        self._before.clear()
        self._depth = 0

    def is_compiled(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether torch.compile has compiled anything in a step of an optimizer."""
        return id(optimizer) in self._compiled

    def _follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Collect the calls of watched steps: around ``step``, as schedulers of the learning rate count it."""
        step, collector = optimizer.step, self._collector
        assert collector is not None

        @functools.wraps(step)
        def collecting(one: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            has_closure = any(value is not None for value in (*args, *kwargs.values()))
            is_seen = id(one) in self._armed and not (has_closure or self.is_compiled(one))
            if not is_seen or torch.compiler.is_compiling():
                return step(*args, **kwargs)
            with collector() as own:
                self._own[id(one)] = own
                try:
                    return step(*args, **kwargs)
                finally:
                    self._own.pop(id(one), None)

        # Others ask for the function of this method and for its attributes.
        optimizer.step = MethodType(collecting, optimizer)  # type: ignore[method-assign]

    def _begin(self, optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._depth += 1
        self._frames = compiled_frames() if self._depth == 1 else self._frames
        if id(optimizer) not in self._armed:
            return
        self._armed.discard(id(optimizer))
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            # It computes the gradients itself.
            self._note_closure()
            return
        self._before[id(optimizer)] = OptimizerState(optimizer, self._restore_random_of())
        if own := self._own.get(id(optimizer)):
            own.is_on = True

    def _end(self, optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._depth -= 1
        if self._depth or id(optimizer) not in self._before:
            # All processes have to agree on what is compiled before a step that is compared.
            if not self._depth and compiled_frames() > self._frames:
                self._compiled.add(id(optimizer))
            return
        before, own = self._before.pop(id(optimizer)), self._own.get(id(optimizer))
        if own is not None:
            own.is_on = False
        step = _without_hooks(type(optimizer).step)

        def again() -> None:
            step(*args, **kwargs)

        self._compare(optimizer, before, again, own)


def compiled_frames() -> int:
    """Return how many functions torch.compile has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["ok"])


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


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the parameters of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _copied(value: Any) -> Any:
    return local_part(value).detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _restored(value: Any, former: Any) -> Any:
    """Return a value as it was formerly: the same tensor, or a copy of another object."""
    if isinstance(value, Tensor):
        local_part(value).detach().copy_(former)
        return value
    return copy.deepcopy(former)


def pass_digests(model: nn.Module, result: Any) -> dict[str, int]:
    """Return the digests of what a pass leaves, by name: what it returned, gradients and buffers."""
    with NoDispatch():
        numbers = ((f"result {place}", number_digest(leaf)) for place, leaf in enumerate(tree_leaves(result)))
        return named_digests(_tensors(model, result)) | {name: one for name, one in numbers if one is not None}


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


def optimizer_digests(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, int]:
    """Return the digests of an optimizer's parameters and state; ``names`` are those of parameters by their id."""
    with NoDispatch():
        values = list(_values(optimizer, names))
        digests = named_digests((name, value) for name, value in values if isinstance(value, Tensor))
        numbers = ((name, number_digest(value)) for name, value in values if not isinstance(value, Tensor))
        return digests | {name: number for name, number in numbers if number is not None}


def _values(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    for number, parameter in enumerate(parameters_of(optimizer)):
        name = names.get(id(parameter), f"parameter {number} of the optimizer")
        yield name, parameter
        # Parameters without a gradient have no state.
        if parameter in optimizer.state:
            for key, value in optimizer.state[parameter].items():
                yield f"{key} of {name}", value
