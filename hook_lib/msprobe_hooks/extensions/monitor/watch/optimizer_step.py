"""What is measured just before a step of the optimizer, and just after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.parameters import Weight, measure
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection


class OptimizerState(Protocol):
    """What an optimizer knows of parameters of the model."""

    def stepped(self, weights: Iterable[Weight]) -> list[Weight]:
        """Return the parameters that it steps."""

    def moments(self, weights: Iterable[Weight]) -> Iterable[tuple[Weight, Mapping[str, Any]]]:
        """Yield the parameters that have a state, with it: ``exp_avg`` and ``exp_avg_sq`` are Adam's moments."""

    def updates(self, weights: Iterable[Weight]) -> Iterable[tuple[Weight, Any, Any]]:
        """Yield the parameters that have Adam's moments, with their update and its ratio, as tensors."""

    def agreement(self, gradient: Any, moment: Any) -> Any:
        """Return the share of elements whose signs agree in a gradient and its first moment, as a tensor."""


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
        chunks: dict[int, list[tuple[str, Any]]] = {}
        for weight in self._with_gradients:
            gradient, moment = weight.gradient(), moments.get(weight)
            if gradient is not None:
                found = (f"{weight.name}.mg_direction", self._state.agreement(gradient, moment))
                chunks.setdefault(weight.chunk, []).append(found)
        for chunk, named in chunks.items():
            self._collection.measure("other", chunk, [name for name, _ in named], [one for _, one in named])
