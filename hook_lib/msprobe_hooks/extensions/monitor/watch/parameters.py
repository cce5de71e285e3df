"""Measurements of parameters just before a step of the optimizer, and just after it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.first_steps import is_targeted, msprobe_short_names
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection
from msprobe_hooks.messages import listed

_UNSEEN = " (optimizers created before gc.freeze() are not seen, and may have them)"


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A parameter of a chunk of the model, by the name of its series; ``gradient`` is what the optimizer will see."""

    chunk: int
    name: str
    parameter: Any
    gradient: Callable[[], Any]


def weights_of(
    models: Sequence[Any],
    plan: Plan,
    named_parameters: Callable[[Any], Iterable[tuple[str, Any]]],
    gradient: Callable[[Any], Any],
) -> tuple[list[Weight], list[Weight]]:
    """Return the parameters that a plan names, in the models' order, those that are tied once: trainable ones, others.

    ``named_parameters`` returns a model's, ``gradient`` that of a parameter, None where it has none.
    """
    trainable: list[Weight] = []
    frozen: list[Weight] = []
    for chunk, model in enumerate(models):
        named = list(named_parameters(model))
        for those, requires_grad in ((trainable, True), (frozen, False)):
            full = [(name, one) for name, one in named if bool(one.requires_grad) is requires_grad]
            names = (
                msprobe_short_names([name for name, _ in full]) if plan.squashes_names else [name for name, _ in full]
            )
            for (long, parameter), name in zip(full, names, strict=True):
                if is_targeted(plan, chunk, (long, name)):
                    those.append(Weight(chunk, name, parameter, partial(gradient, parameter)))
    return trainable, frozen


def measure(
    collection: Collection,
    task: str,
    weights: Iterable[tuple[Weight, Any]],
    micro_step: int | None = None,
) -> None:
    """Measure what belongs to parameters, where there is any, all of a chunk at once."""
    chunks: dict[int, list[tuple[str, Any]]] = {}
    for weight, tensor in weights:
        if tensor is not None:
            chunks.setdefault(weight.chunk, []).append((weight.name, tensor))
    for chunk, named in chunks.items():
        collection.measure(task, chunk, [name for name, _ in named], [tensor for _, tensor in named], micro_step)


class OptimizerState(Protocol):
    """State of an optimizer on parameters of the model."""

    def stepped(self, weights: Iterable[Weight]) -> list[Weight]:
        """Return the parameters that it steps."""

    def moments(self, weights: Iterable[Weight]) -> Iterable[tuple[Weight, Mapping[str, Any]]]:
        """Yield the parameters that have a state, with it: ``exp_avg`` and ``exp_avg_sq`` are Adam's moments."""

    def updates(self, weights: Iterable[Weight]) -> Iterable[tuple[Weight, Any, Any]]:
        """Yield the parameters that have Adam's moments, with their update and its ratio, as tensors."""

    def agreements(self, pairs: Iterable[tuple[Any, Any]]) -> Sequence[Any]:
        """Return the shares of elements whose signs agree in gradients and their first moments, as tensors."""


class OptimizerStepObserver:
    """Measures what there is just before a step of the optimizer, and just after it."""

    def __init__(
        self,
        collection: Collection,
        plan: Plan,
        state: OptimizerState,
        weights: Sequence[Weight],
        with_gradients: Sequence[Weight],
    ) -> None:
        self._collection = collection
        self._plan = plan
        self._state = state
        self._weights = weights
        self._with_gradients = with_gradients

    def before(self) -> None:
        """Measure reduced gradients, parameters, moments, and how far gradients and moments agree."""
        plan, collection = self._plan, self._collection
        if plan.wants("gradients"):
            measure(collection, "grad_reduced", [(one, one.gradient()) for one in self._with_gradients])
        if plan.wants("parameters"):
            measure(collection, "param_origin", [(one, one.parameter) for one in self._weights])
        if plan.wants("moments") or plan.wants("direction"):
            moments = list(self._state.moments(self._weights))
            for name in ("exp_avg", "exp_avg_sq") if plan.wants("moments") else ():
                measure(collection, name, [(one, state.get(name)) for one, state in moments])
            if plan.wants("direction"):
                self._measure_direction({one: state.get("exp_avg") for one, state in moments})

    def after(self) -> None:
        """Measure parameters, and the update that Adam's moments made."""
        plan, collection = self._plan, self._collection
        if plan.wants("parameters"):
            measure(collection, "param_updated", [(one, one.parameter) for one in self._weights])
        if plan.wants("updates"):
            # One by one: each is as large as the parameter.
            for weight, *tensors in self._state.updates(self._weights):
                for task, tensor in zip(("adam_update", "adam_ratio"), tensors, strict=True):
                    measure(collection, task, [(weight, tensor)])
                    if plan.format == "tensorboard":
                        collection.distribute(task, weight.chunk, weight.name, tensor)

    def _measure_direction(self, moments: Mapping[Weight, Any]) -> None:
        gradients = [(one, gradient) for one in self._with_gradients if (gradient := one.gradient()) is not None]
        agreements = self._state.agreements((gradient, moments.get(one)) for one, gradient in gradients)
        chunks: dict[int, list[tuple[str, Any]]] = {}
        for (one, _), agreement in zip(gradients, agreements, strict=True):
            chunks.setdefault(one.chunk, []).append((f"{one.name}.mg_direction", agreement))
        for chunk, named in chunks.items():
            self._collection.measure("other", chunk, [name for name, _ in named], [one for _, one in named])


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by what becomes of them.

    ``forgotten`` are the watched ones that no optimizer has, ``of_others`` those that only other optimizers have.
    ``frozen`` take no gradient. With ``are_optimizers_hidden`` other optimizers may have the forgotten ones.
    """

    watched: Sequence[Weight]
    frozen: Sequence[Weight]
    forgotten: Sequence[Weight] = ()
    of_others: Sequence[Weight] = ()
    are_optimizers_hidden: bool = False

    def notes(self) -> Iterator[str]:
        """Yield a line for each reason why parameters are not watched, or not updated."""
        if self.forgotten:
            yield (
                f"parameters in no optimizer of this process: {_named(self.forgotten)}; add them to the optimizer "
                "if no other rank updates them, or set requires_grad to False if they are meant to be frozen"
                f"{_UNSEEN if self.are_optimizers_hidden else ''}"
            )
        if self.of_others:
            yield (
                f"parameters not monitored, because another optimizer has them: {_named(self.of_others)}; "
                "monitor that optimizer as well"
            )
        if self.frozen:
            yield f"parameters not monitored, because requires_grad is False: {_named(self.frozen)}"


def parameters_with(
    optimizer: OptimizerState,
    weights: Sequence[Weight],
    frozen: Sequence[Weight],
    others: Callable[[], Iterable[OptimizerState]],
) -> Parameters:
    """Return what of the parameters is watched with an optimizer: all but those that only ``others`` have.

    What is in no optimizer may have been forgotten. It is watched, so that its series shows that it never changes.
    """
    stepped = set(optimizer.stepped(weights))
    rest = [one for one in weights if one not in stepped]
    of_others: set[Weight] = set()
    for other in others() if rest else ():
        # Not an optimizer that the user gave to watch: one that cannot be asked yet must not end the training.
        with suppress(Exception):
            of_others.update(other.stepped(rest))
    return Parameters(
        watched=[one for one in weights if one not in of_others],
        frozen=frozen,
        forgotten=[one for one in rest if one not in of_others],
        of_others=[one for one in rest if one in of_others],
        are_optimizers_hidden=_are_hidden(),
    )


def _named(weights: Iterable[Weight]) -> str:
    return listed(f"{one.chunk}:{one.name}" if one.chunk else one.name for one in weights)


def living(kind: type | tuple[type, ...]) -> list[Any]:
    """Return all objects of a class, or of one of several.

    Garbage goes first: an optimizer that was replaced by another does not count. An object's own word for its class,
    as a proxy's or a lazy module's, is not asked for, since that may run its code.
    """
    gc.collect()
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def _are_hidden() -> bool:
    """Return whether some objects of this process cannot be listed, as `gc.freeze` has it."""
    return gc.get_freeze_count() > 0
