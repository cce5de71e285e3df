"""Steps, moments and updates of an optimizer, and the values of collective communication."""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.dump.effects import RECEIVED
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.watch import config
from msprobe_hooks.extensions.monitor.watch.batched_statistics import SMALL, flatten, parts_of, scratch, total_of
from msprobe_hooks.extensions.monitor.watch.parameters import Weight
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection, Errors
from msprobe_hooks.recording.interposition import Around
from msprobe_hooks.torch.collective_hooks import CollectiveHooks
from msprobe_hooks.torch.statistics import local_part


class StepHooks:
    """Has functions called before and after each step of one optimizer, whatever other optimizers of its class do."""

    def __init__(self, optimizer: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Register the hooks. Raises ConfigError for what is not an optimizer, and for one that calls no hooks."""
        if not callable(getattr(optimizer, "step", None)):
            raise ConfigError("optimizer", type(optimizer).__name__, "an optimizer, with a method step")
        self._handles: list[Any] = []
        if not hasattr(optimizer, "register_step_pre_hook"):
            # One around others, as Megatron's, has a method and no hooks.
            self._handles.append(_Stepping(optimizer, before, after))
            return
        try:
            self._handles.append(optimizer.register_step_pre_hook(lambda *_: before()))
            self._handles.append(optimizer.register_step_post_hook(lambda *_: after()))
        except AttributeError:
            # Accelerate's is of torch's class, and never initialized as such.
            raise ConfigError(
                "optimizer",
                type(optimizer).__name__,
                "an optimizer that calls hooks around its steps; for a wrapper, the wrapped optimizer",
            ) from None

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Stepping:
    """Replaces an optimizer's method ``step``, also where it has been wrapped since."""

    def __init__(self, optimizer: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._former = vars(optimizer).get("step")
        self._step = optimizer.step
        self._around: tuple[Callable[[], None], Callable[[], None]] | None = (before, after)
        optimizer.step = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._around is None:
            return self._step(*args, **kwargs)
        before, after = self._around
        before()
        result = self._step(*args, **kwargs)
        after()
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        # What a copy or a pickle of the optimizer has in this place: its own method, or what was there before.
        if self._former is None:
            return getattr, (self._optimizer, "step")
        return partial, (self._former,)

    def remove(self) -> None:
        """Restore what was there before; with another around it, only call that from now on."""
        self._around = None
        if vars(self._optimizer).get("step") is not self:
            return
        if self._former is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._former


class OptimizerState:
    """The state of an optimizer by parameter of the model.

    Optimizers around others are looked through: ``optimizer``, ``optim`` and ``chained_optimizers`` are what they hold.
    What is stepped may be a copy in float32: the parameter's ``main_param``, or that in ``fp32_from_float16_groups``
    which has the place of the parameter in ``float16_groups``.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizers = [] if optimizer is None else list(_inside(optimizer))

    def stepped(self, weights: Iterable[Weight]) -> list[Weight]:
        """Return the parameters that the optimizer steps, themselves or as a copy."""
        places, copies = self._places(), self._copies()
        return [one for one in weights if any(id(of) in places for of in _stood_in_for(one, copies))]

    def moments(self, weights: Iterable[Weight]) -> Iterator[tuple[Weight, Mapping[str, Any]]]:
        """Yield the parameters that have a state, with it."""
        return ((weight, state) for weight, state, _ in self._of(weights))

    def updates(self, weights: Iterable[Weight]) -> Iterator[tuple[Weight, Tensor, Tensor]]:
        """Yield the parameters that have Adam's moments, with their update and its ratio."""
        for weight, state, group in self._of(weights):
            if (update := update_and_ratio(state, group)) is not None:
                yield weight, *update

    def agreements(self, pairs: Iterable[tuple[Tensor, Tensor | None]]) -> list[Tensor]:
        """Return how far the signs of each gradient and of its first moment agree; 1 where there is no moment yet."""
        shares: list[Tensor] = []
        small: list[tuple[int, Tensor, Tensor]] = []
        for gradient, moment in pairs:
            if moment is None:
                shares.append(gradient.new_ones(()))
            elif _is_small(gradient) and _is_small(moment) and gradient.numel() == moment.numel():
                small.append((len(shares), gradient, moment))
                # In place of what is computed of all.
                shares.append(moment)
            else:
                shares.append(direction(gradient, moment))
        for start in range(0, len(small), _PAIRS):
            places, gradients, moments = zip(*small[start : start + _PAIRS], strict=True)
            for place, share in zip(places, _directions(gradients, moments), strict=True):
                shares[place] = share
        return shares

    def _of(self, weights: Iterable[Weight]) -> Iterator[tuple[Weight, Mapping[str, Any], Mapping[str, Any]]]:
        places, copies = self._places(), self._copies()
        for weight in weights:
            for one in _stood_in_for(weight, copies):
                if id(one) in places:
                    states, group = places[id(one)]
                    if state := states.get(one):
                        yield weight, state, group
                    break

    def _places(self) -> dict[int, tuple[Mapping[Any, Any], Mapping[str, Any]]]:
        return {
            id(parameter): (getattr(one, "state", {}), group)
            for one in self._optimizers
            for group in getattr(one, "param_groups", ())
            for parameter in group["params"]
        }

    def _copies(self) -> dict[int, Tensor]:
        copies = {}
        for one in self._optimizers:
            halves, wholes = (getattr(one, name, ()) for name in ("float16_groups", "fp32_from_float16_groups"))
            for half, whole in zip(chain(*halves), chain(*wholes), strict=False):
                copies[id(half)] = whole
        return copies


def _stood_in_for(weight: Weight, copies: Mapping[int, Tensor]) -> Iterator[Tensor]:
    parameter = weight.parameter
    for one in (parameter, getattr(parameter, "main_param", None), copies.get(id(parameter))):
        if one is not None:
            yield one


def _inside(optimizer: Any) -> Iterator[Any]:
    yield optimizer
    for one in getattr(optimizer, "chained_optimizers", ()):
        yield from _inside(one)
    for name in ("optimizer", "optim"):
        inner = getattr(optimizer, name, None)
        # A wrapper may keep the module torch.optim under such a name.
        if inner is not None and inner is not optimizer and not isinstance(inner, ModuleType):
            yield from _inside(inner)


def update_and_ratio(state: Mapping[str, Any], group: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return m̂ / (sqrt(v̂) + eps) and m̂ / sqrt(v̂) with Adam's bias-corrected moments (Kingma and Ba 2015, algorithm 1).

    The ratio is 0 where v̂ is, as for rows of an embedding that were never looked up. None without such moments.
    """
    first, second = state.get("exp_avg"), state.get("exp_avg_sq")
    step = state.get("step", group.get("step"))
    if first is None or second is None or step is None or "betas" not in group:
        return None
    if isinstance(step, Tensor):
        # 1 - beta² of few steps would lose half of its digits in float32.
        step = step.double()
    (beta1, beta2), first, second = group["betas"], local_part(first), local_part(second)
    corrected = first / (1 - beta1**step)
    root = (second / (1 - beta2**step)).sqrt_()
    update = corrected / (root + group.get("eps", 0.0))
    return update, corrected.div_(root).masked_fill_(root == 0, 0.0)


def direction(gradient: Tensor, moment: Tensor) -> Tensor:
    """Return the share of elements whose signs agree, those that are 0 by half: (mean of sign(g)·sign(m) + 1) / 2."""
    gradient, moment = local_part(gradient), local_part(moment)
    pairs = zip(*(parts_of(one.reshape(-1)) for one in (gradient, moment)), strict=True)
    agreement = total_of(_agreement(one, other) for one, other in pairs)
    return torch.as_tensor((agreement / max(gradient.numel(), 1) + 1) / 2, dtype=torch.float64)


def _is_small(tensor: Tensor) -> bool:
    is_plain = type(tensor) is Tensor and tensor.is_cpu and tensor.layout is torch.strided
    return is_plain and tensor.dtype is torch.float32 and 0 < tensor.numel() <= SMALL


def _directions(gradients: Sequence[Tensor], moments: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return what `direction` does of small tensors: the sums are of integers, and exact in whatever order."""
    counts = np.array([one.numel() for one in gradients])
    signs, others = (torch.sign(flatten(list(those))) for those in (gradients, moments))
    agreement = np.add.reduceat(signs.mul_(others).numpy(), np.cumsum(counts) - counts, dtype=np.float64)
    return torch.from_numpy((agreement / counts + 1) / 2).unbind()


def _agreement(part: Tensor, other: Tensor) -> Tensor:
    product = torch.dot(_signs(part, 0), _signs(other, 1))
    return product if product.is_cpu else product.double()


def _signs(part: Tensor, number: int) -> Tensor:
    room = scratch(part, torch.float32, number)
    return torch.sign(part, out=room) if part.dtype is torch.float32 else room.copy_(part).sign_()


_log = logging.getLogger("msprobe_hooks")

# Of so many small tensors gradients and moments are looked at together, at most 2 MiB.
_PAIRS = 32

# Asynchronous calls that are never waited for in Python are forgotten when there are more.
_MOST_WAITING = 1000


class Collectives:
    """Measures what the collectives take and give that are called from lines of interest."""

    def __init__(self, collection: Collection, selection: config.Collectives) -> None:
        self._wanted = selection
        self._lines = [re.compile(line) for line in selection.codelines]
        self._stacks: Counter[tuple[str, str]] = Counter()
        self._collection = collection
        self.before = collection.harmless("a collective", self._before)
        self.after = collection.harmless("a collective", self._after)
        _calls.listen(self)

    def end_step(self) -> None:
        """Log the stacks where these are all that is wanted."""
        stacks, self._stacks = self._stacks, Counter()
        for (name, stack), count in stacks.items():
            _log.info("%s, called %d times: %s", name, count, stack)

    def remove(self) -> None:
        """Stop listening."""
        _calls.leave(self)

    def _before(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], stack: Sequence[str]) -> None:
        if not self._is_of_interest(stack):
            return
        if self._wanted.only_stacks:
            self._stacks[name, "; ".join(stack)] += 1
        elif self._wanted.before:
            # Buffers that are to be filled hold nothing yet.
            received = RECEIVED.get(name, ())
            positional = [value for place, value in enumerate(args) if str(place) not in received]
            named = [value for key, value in kwargs.items() if key not in received]
            self._measure(f"{name}/pre", [*positional, *named])

    def _after(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], stack: Sequence[str]) -> None:
        if not self._wanted.only_stacks and self._is_of_interest(stack):
            self._measure(f"{name}/post", [*args, *kwargs.values()])

    def _is_of_interest(self, stack: Sequence[str]) -> bool:
        return not self._lines or any(one.search(line) for line in stack for one in self._lines)

    def _measure(self, name: str, values: list[Any]) -> None:
        tensors = list(_tensors_in(values))
        names = [f"{name}_{place}" for place in range(len(tensors))]
        self._collection.measure_again("other", names, tensors)


class _Calls:
    """The hooks that all listeners share; there are none without listeners."""

    def __init__(self) -> None:
        self._listeners: list[Collectives] = []
        self._hooks: CollectiveHooks[Callable[[], None]] = CollectiveHooks(
            self._around, lambda finish: finish(), _warn_of_refused, _MOST_WAITING
        )
        self._is_inside = False
        self._kept = Errors().kept_from("collectives")

    def listen(self, listener: Collectives) -> None:
        if not self._listeners:
            self._hooks.begin()
        self._listeners.append(listener)

    def leave(self, listener: Collectives) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            if not self._listeners:
                self._hooks.end()

    def _around(self, name: str) -> Around:
        def around(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if self._is_inside:
                return function(*args, **kwargs)
            stack: list[str] = []
            with self._kept:
                # In words at once: an asynchronous call's frames move on until it is waited for.
                stack += _lines(sys._getframe(2))
            for listener in list(self._listeners):
                listener.before(name, args, kwargs, stack)
            self._is_inside = True
            try:
                result = function(*args, **kwargs)
            finally:
                self._is_inside = False

            def finish() -> None:
                for listener in list(self._listeners):
                    listener.after(name, args, kwargs, stack)

            with self._kept:
                self._hooks.returned(result, finish)
            return result

        return around


def _warn_of_refused(name: str, error: TypeError) -> None:
    _log.warning("torch.distributed.%s is not monitored: %s", name, error)


_calls = _Calls()


def _lines(frame: FrameType | None) -> Iterator[str]:
    """Yield where a call was made, from the innermost frame out, as ``file[line]``."""
    while frame is not None:
        yield f"{frame.f_code.co_filename}[{frame.f_lineno}]"
        frame = frame.f_back


def _tensors_in(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _tensors_in(value)
        else:
            # A point-to-point operation of a batch has its tensor inside.
            tensor = value if isinstance(value, Tensor) else getattr(value, "tensor", None)
            if isinstance(tensor, Tensor):
                yield tensor
