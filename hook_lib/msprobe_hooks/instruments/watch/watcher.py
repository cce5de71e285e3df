"""A training that is watched: the observers of a model and an optimizer, and what becomes of a step they have seen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.series.anomalies import Alert
from msprobe_hooks.instruments.series.writing import Row
from msprobe_hooks.instruments.watch.alerts import Alarm
from msprobe_hooks.instruments.watch.collection import Collection
from msprobe_hooks.instruments.watch.config import Plan
from msprobe_hooks.instruments.watch.modules import Fields, Modules
from msprobe_hooks.instruments.watch.optimizers import AroundStep, OptimizerState, StepHooks
from msprobe_hooks.instruments.watch.run_files import RunFiles
from msprobe_hooks.instruments.watch.squashing import squashed
from msprobe_hooks.instruments.watch.statistics import Meter
from msprobe_hooks.instruments.watch.structure import Structure
from msprobe_hooks.instruments.watch.weights import UnreducedGradients, Weight, is_inside, measure, weights_of
from msprobe_hooks.torch.process_group import process_rank

_log = logging.getLogger("msprobe_hooks")


class Observer(Protocol):
    """Hooks that measure during a step."""

    def end_step(self) -> None:
        """Forget what belongs to the step that ends."""

    def remove(self) -> None:
        """Take the hooks off."""


class Watcher:
    """Watches a model, or its virtual pipeline chunks, and the optimizer whose steps end those of the training.

    ``rows`` and ``alerts`` are those of the latest step that was collected. Without an optimizer, `end_step` is to be
    called at the end of each step.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizer: Any,
        base: Path,
        *,
        micro_batches: int = 1,
        has_main_grad: bool = False,
        is_left_out: Callable[[Tensor], bool] = lambda _: False,
        first_step: int = 0,
        after_step: Callable[[], None] = lambda: None,
        when_alerted: Callable[[Sequence[Alert]], None] = lambda _: None,
    ) -> None:
        self.rank = process_rank()
        self.step = first_step
        self.plan = Plan()
        self.rows: Sequence[Row] = ()
        self.alerts: Sequence[Alert] = ()
        self.collection = Collection(Meter((), 0.0))
        self._models = models
        self._optimizer = optimizer
        self._base = base
        self._files = RunFiles(base, self.rank)
        self._micro_batches = micro_batches
        self._has_main_grad = has_main_grad
        self._is_left_out = is_left_out
        self._called_after_step = after_step
        self._called_when_alerted = when_alerted
        self.collected = 0
        self._around_step: AroundStep | None = None
        self._observers: list[Observer] = []
        self._with_gradients: list[Weight] = []
        self._structure: Structure | None = None
        self._alarm = Alarm((), ())
        self._hooks = None if optimizer is None else StepHooks(optimizer, self._before_step, self.end_step)

    def follow(self, plan: Plan, *, collected: int = 0) -> None:
        """Watch by a plan from here on, or go on as before where something is wrong with it.

        ``collected`` is how many steps were collected of those that the plan wants.

        Raises ConfigError for an unknown rule and where the optimizer steps none of the model's parameters,
        MonitorError where the folder cannot be written.
        """
        alarm = Alarm(plan.alerts.rules, plan.statistics)
        is_watched = plan.is_for(self.rank)
        collection = Collection(Meter(plan.statistics, plan.eps))
        weights = self._weights(plan)
        self._files.follow(plan if is_watched else Plan(format="api"))
        self._remove_observers()
        self.plan, self.collection, self._alarm, self.collected = plan, collection, alarm, collected
        if is_watched:
            self._observe(weights)
        self._begin_step()

    def end_step(self) -> None:
        """End a step: write what it brought. The optimizer's step ends in this; it never raises."""
        collection = self.collection
        if self._around_step is not None:
            collection.harmless("the optimizer", self._around_step.after)()
        if collection.is_on:
            with collection.errors.kept_from("what a step brought"):
                self._take_step()
        self.step += 1
        self._begin_step()
        with collection.errors.kept_from("what follows a step"):
            self._called_after_step()

    @property
    def folder(self) -> Path | None:
        """Where files are written, None where there are none."""
        return self._files.folder

    @property
    def is_finished(self) -> bool:
        """Tell whether as many steps were collected as are wanted."""
        return self.collected >= self.plan.collect_times

    @property
    def has_begun(self) -> bool:
        """Tell whether the step that runs has brought anything."""
        return self.collection.has_rows

    def latest(self, task: str) -> list[Row]:
        """Return the rows of a task: those of the step that runs, or where it has none, of the latest one collected."""
        running = [row for row in self.collection.look(self.step) if row.task == task]
        return running or [row for row in self.rows if row.task == task]

    def reduced_gradients(self) -> list[Row]:
        """Measure the gradients as they are now, into rows that are not written."""
        apart = Collection(self.collection.meter)
        apart.is_on = self._around_step is not None
        gradients = [(one, one.gradient()) for one in self._with_gradients]
        apart.harmless("gradients", lambda: measure(apart, "grad_reduced", gradients))()
        return apart.take(self.step)

    def measure_once(self, name: str, tensor: Tensor, ranks: Sequence[int] = ()) -> None:
        """Measure a tensor of the program into the task ``other`` of this step, on these ranks, or on all."""
        if not ranks or (self.rank or 0) in ranks:
            self.collection.harmless(name, lambda: self.collection.measure("other", 0, [name], [tensor]))()

    def close(self) -> None:
        """Take all hooks off and finish the files. Raises MonitorError where they cannot be written."""
        self.collection.is_on = False
        self._remove_observers()
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        self._files.close()

    def _weights(self, plan: Plan) -> list[Weight]:
        weights = weights_of(self._models, plan, self._has_main_grad)
        stepped = OptimizerState(self._optimizer).stepped(weights)
        if weights and not stepped and self._optimizer is not None:
            raise ConfigError(
                "optimizer", type(self._optimizer).__name__, "one that steps parameters of the model, and it steps none"
            )
        return stepped if self._optimizer is not None else weights

    def _observe(self, weights: Sequence[Weight]) -> None:
        plan, collection = self.plan, self.collection
        for name in _unknown_targets(plan, self._models):
            _log.warning("targets names %r, which is no module or parameter of the model", name)
        self._with_gradients = [weight for weight in weights if not self._is_left_out(weight.parameter)]
        modules = [(number, *one) for number, model in enumerate(self._models) for one in _modules(number, model, plan)]
        for number, model in enumerate(self._models):
            wanted = [(name, module, fields) for chunk, name, module, fields in modules if chunk == number and fields]
            if wanted:
                self._observers.append(Modules(collection, number, model, wanted))
        if plan.wants("gradients") or plan.wants("micro_batch_gradients"):
            each = plan.wants("micro_batch_gradients")
            self._observers.append(
                UnreducedGradients(collection, self._with_gradients, self._micro_batches, each_micro_batch=each)
            )
        if plan.wants("collectives") and dist.is_available():
            # What this imports is absent from some builds of torch.
            from msprobe_hooks.instruments.watch.collectives import Collectives

            self._observers.append(Collectives(collection, plan.collectives))
        if plan.wants("structure") or plan.wants("stacks"):
            named = [(f"{chunk}:{name}", module) for chunk, name, module, _ in modules]
            self._structure = Structure(
                collection, named, has_structure=plan.wants("structure"), has_stacks=plan.wants("stacks")
            )
        self._around_step = AroundStep(collection, plan, self._optimizer, weights, self._with_gradients)

    def _remove_observers(self) -> None:
        for observer in self._observers:
            observer.remove()
        self._observers = []
        self._around_step = None
        if self._structure is not None:
            self._structure.remove()
            self._structure = None

    def _before_step(self) -> None:
        if self._around_step is not None:
            self.collection.harmless("the optimizer", self._around_step.before)()

    def _begin_step(self) -> None:
        for observer in self._observers:
            observer.end_step()
        is_wanted = not self.is_finished and self.plan.takes(self.step)
        self.collection.is_on = is_wanted and self._around_step is not None

    def _take_step(self) -> None:
        self.rows = rows = self.collection.take(self.step)
        self.collected += 1
        structure, self._structure = self._structure, None
        if structure is not None:
            structure.write(self.folder or self._base)
        self._files.add(self.step, rows)
        self.alerts = self._alarm.feed(rows)
        if self.alerts:
            self._called_when_alerted(self.alerts)


def as_models(given: Any) -> list[nn.Module]:
    """Return a model, or a list of them, as a list. Raises ConfigError for anything else."""
    models = [given] if isinstance(given, nn.Module) else given
    if not isinstance(models, (list, tuple)) or not models or not all(isinstance(one, nn.Module) for one in models):
        raise ConfigError("model", type(given).__name__, "a torch.nn.Module, or a list of them")
    return list(models)


def _modules(number: int, model: nn.Module, plan: Plan) -> Iterator[tuple[str, nn.Module, Fields]]:
    """Yield name, module and wanted fields of all inside a chunk; nothing is wanted of those that are not targets."""
    named = list(model.named_modules())
    full = [name for name, _ in named]
    names = squashed(full) if plan.squashes_names else full
    allowed = [field for field, what in _ASKED_BY.items() if plan.wants(what)]
    for name, (full_name, module) in zip(names, named, strict=True):
        keys = (f"{number}:{name}", f"{number}:{full_name}", name, full_name)
        target = next((plan.targets[key] for key in keys if key in plan.targets), None)
        fields: Mapping[str, str | None] = {}
        if target is not None:
            fields = {field: target[field] for field in allowed if field in target}
        elif plan.has_all_modules:
            fields = dict.fromkeys(allowed)
        yield name, module, fields


def _unknown_targets(plan: Plan, models: Sequence[nn.Module]) -> list[str]:
    known: list[tuple[int, str]] = []
    for chunk, model in enumerate(models):
        for named in (model.named_modules(), model.named_parameters()):
            full = [name for name, _ in named]
            known += [(chunk, name) for name in [*full, *squashed(full)]]
    return [target for target in plan.targets if not any(is_inside(*one, target) for one in known)]


_ASKED_BY = {
    "input": "activations",
    "output": "activations",
    "input_grad": "activation_gradients",
    "output_grad": "activation_gradients",
}
