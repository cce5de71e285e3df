"""A monitored training: the observers of a model and an optimizer, each step's results, notes on what is left out."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.series.anomalies import Alert
from msprobe_hooks.extensions.monitor.series.writer import Row
from msprobe_hooks.extensions.monitor.watch.config import Plan, whole_number
from msprobe_hooks.extensions.monitor.watch.first_steps import (
    SIDES,
    WHATS,
    FirstSteps,
    Target,
    unknown_targets,
    with_fields,
)
from msprobe_hooks.extensions.monitor.watch.parameters import (
    OptimizerState,
    OptimizerStepObserver,
    Parameters,
    Weight,
    measure,
    parameters_with,
    weights_of,
)
from msprobe_hooks.extensions.monitor.watch.run_files import RunFiles
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection, Fields, Modules
from msprobe_hooks.extensions.monitor.watch.structure import Alarm, Structure
from msprobe_hooks.messages import did_you_mean, listed

_log = logging.getLogger("msprobe_hooks")


def notes_on_ranks(plan: Plan, rank: int | None) -> Iterator[str]:
    """Yield a line where the only process of a program is not among the ranks that are watched."""
    if rank is None and plan.what and not plan.is_for(rank):
        ranks = listed(map(str, sorted(plan.ranks)))
        yield f"nothing is monitored: this process, not distributed, has rank 0, and the ranks to monitor are {ranks}"


def notes_on_targets(plan: Plan, targets: Sequence[Target], names: Iterable[Iterable[Sequence[str]]]) -> Iterator[str]:
    """Yield a line on targets that are nothing in the model, and one on their sides that the plan does not watch.

    ``names`` are, for each chunk, lists of what is in it.
    """
    chunks = [list(lists) for lists in names]
    if unknown := unknown_targets(plan, chunks):
        which = "not a module or parameter" if len(unknown) == 1 else "not modules or parameters"
        hint = did_you_mean(unknown[0], (name for lists in chunks for full in lists for name in full))
        yield f"targets: {which} of the model: {listed(map(repr, unknown))}{hint}"
    elif not plan.has_all_modules and not targets:
        whats = [what for what in WHATS if plan.wants(what)]
        if whats:
            yield f"targets names parameters only: {' and '.join(whats)} are not monitored"
    missing: dict[str, list[str]] = {}
    for target in targets:
        for field in target.requested:
            if field not in target.fields:
                missing.setdefault(field, []).append(target.name)
    fields = [field for field in SIDES if field in missing]
    if fields:
        unwanted = dict.fromkeys(SIDES[field].what for field in fields)
        of = dict.fromkeys(name for field in fields for name in missing[field])
        yield (
            f"targets requests {', '.join(fields)} of {listed(map(repr, of))}, "
            f"but {' and '.join(unwanted)} are not monitored"
        )


class Observer(Protocol):
    """Hooks that measure during a step."""

    def end_step(self) -> None:
        """Forget what belongs to the step that ends."""

    def remove(self) -> None:
        """Take the hooks off."""


class Removable(Protocol):
    """Hooks on an optimizer."""

    def remove(self) -> None:
        """Take the hooks off."""


class Watcher(ABC):
    """Monitors a model, or its virtual pipeline chunks, and the optimizer whose steps end those of the training.

    ``rows`` and ``alerts`` are those of the latest step that was collected, ``files`` what is written. Without an
    optimizer, `end_step` is to be called at the end of each step.

    With ``has_main_grad`` gradients are read from ``main_grad``, where a parameter has one. ``is_left_out`` is true of
    parameters whose gradients another rank reports. Raises ConfigError where ``model`` is not one, or a list of them.
    """

    tensor_class: ClassVar[type]
    module_class: ClassVar[type]

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        base: Path,
        *,
        micro_batches: int = 1,
        has_main_grad: bool = False,
        is_left_out: Callable[[Any], bool] = lambda _: False,
        first_step: int = 0,
        after_step: Callable[[], None] = lambda: None,
        when_alerted: Callable[[Sequence[Alert]], None] = lambda _: None,
    ) -> None:
        self.rank = self.process_rank()
        self.step = whole_number(0)("first_step", first_step)
        self.plan = Plan()
        self.rows: Sequence[Row] = ()
        self.alerts: Sequence[Alert] = ()
        self.collection = self.new_collection(self.plan)
        self.models = as_models(model, self.module_class)
        self.optimizer = optimizer
        self.micro_batches = whole_number(1)("micro_batches", micro_batches)
        self.has_main_grad = has_main_grad
        self._base = base
        self.files = RunFiles(base, self.rank)
        self._is_left_out = is_left_out
        self._called_after_step = after_step
        self._called_when_alerted = when_alerted
        self.collected = 0
        self._around_step: OptimizerStepObserver | None = None
        self._observers: list[Observer] = []
        self._with_gradients: list[Weight] = []
        self._structure: Structure | None = None
        self._first_steps = FirstSteps(self.plan)
        self._warned: set[str] = set()
        self._alarm = Alarm((), ())
        self._hooks = None if optimizer is None else self.hooks_on_steps()

    @abstractmethod
    def process_rank(self) -> int | None:
        """Return this process's rank, None where there is one process."""

    @abstractmethod
    def new_collection(self, plan: Plan) -> Collection:
        """Return what measures the statistics of a plan."""

    @abstractmethod
    def hooks_on_steps(self) -> Removable:
        """Make the optimizer call `begin_end_of_step` before each step and `end_step` after it."""

    @abstractmethod
    def state(self) -> OptimizerState:
        """Return the state of the optimizer, or of none."""

    @abstractmethod
    def living_optimizers(self) -> Iterable[OptimizerState]:
        """Return the states of all optimizers in this process."""

    def is_compiled(self) -> bool:
        """Return whether modules may have run compiled, which runs no hooks."""
        return False

    @abstractmethod
    def gradient(self, parameter: Any) -> Any:
        """Return the gradient that the optimizer will see, None where there is none."""

    def has_gradients(self) -> bool:
        """Return whether the optimizer that steps was given a gradient of any parameter."""
        return self.optimizer is None or any(one.gradient() is not None for one in self._with_gradients)

    @abstractmethod
    def named_modules(self, model: Any) -> Iterable[tuple[str, Any]]:
        """Yield all modules in a model by name."""

    @abstractmethod
    def named_parameters(self, model: Any) -> Iterable[tuple[str, Any]]:
        """Yield the parameters of a model by name."""

    @abstractmethod
    def hooks_on_modules(self, chunk: int, modules: Sequence[tuple[str, Any, Fields]]) -> Modules:
        """Return hooks on modules of a chunk of the model: name, module and what is wanted of it."""

    @abstractmethod
    def hooks_on_gradients(self, weights: Sequence[Weight], *, each_micro_batch: bool) -> Observer:
        """Return hooks on the gradients of parameters before they are reduced."""

    @abstractmethod
    def hooks_on_collectives(self, plan: Plan) -> Observer | None:
        """Return hooks on collectives, None where there are none."""

    def follow(self, plan: Plan, *, collected: int = 0) -> None:
        """Watch by a plan from here on, or go on as before where something is wrong with it.

        ``collected`` is how many steps were collected of those that the plan wants.

        Raises ConfigError for an unknown rule and where the optimizer steps none of the model's parameters,
        MonitorError where the folder cannot be written.
        """
        alarm = Alarm(plan.alerts.rules, plan.statistics)
        is_watched = plan.is_for(self.rank)
        collection = self.new_collection(plan)
        parameters = self._parameters(plan)
        self.files.follow(plan if is_watched else Plan(format="api"))
        self._remove_observers()
        self.plan, self.collection, self._alarm, self.collected = plan, collection, alarm, collected
        self._warn(notes_on_ranks(plan, self.rank))
        if is_watched:
            self._observe(parameters)
        self._begin_step()

    def end_step(self) -> None:
        """End a step and write its rows. The optimizer's step ends in this; it never raises."""
        collection = self.collection
        if self._around_step is not None:
            collection.harmless("the optimizer", self._around_step.after)()
        if collection.is_on:
            with collection.errors.kept_from("the rows of a step"):
                self._take_step()
        self.step += 1
        with collection.errors.kept_from("the start of the next step"):
            self._begin_step()
            self._called_after_step()

    @property
    def folder(self) -> Path | None:
        """Return where files are written, None where there are none."""
        return self.files.folder

    @property
    def is_finished(self) -> bool:
        """Return whether as many steps were collected as are wanted."""
        return self.collected >= self.plan.collect_times

    @property
    def has_begun(self) -> bool:
        """Return whether the current step has rows."""
        return self.collection.has_rows

    def latest(self, task: str) -> list[Row]:
        """Return the rows of a task: those of the step that runs, or where it has none, of the latest one collected."""
        running = [row for row in self.collection.look(self.step) if row.task == task]
        return running or [row for row in self.rows if row.task == task]

    def reduced_gradients(self) -> list[Row]:
        """Measure the gradients as they are now, into rows that are not written."""
        apart = self.new_collection(self.plan)
        apart.is_on = self._around_step is not None
        gradients = [(one, one.gradient()) for one in self._with_gradients]
        apart.harmless("gradients", lambda: measure(apart, "grad_reduced", gradients))()
        return apart.take(self.step)

    def measure_once(self, name: str, tensor: Any, ranks: Sequence[int] = ()) -> None:
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
        self.files.close()

    def _parameters(self, plan: Plan) -> Parameters:
        weights, frozen = weights_of(self.models, plan, self.named_parameters, self._gradient)
        if self.optimizer is not None and weights and not self.state().stepped(weights):
            raise ConfigError(
                "optimizer",
                type(self.optimizer).__name__,
                "an optimizer of the model's parameters, of which it has none",
            )
        if self.optimizer is None or not plan.wants_parameters:
            return Parameters(weights, frozen)
        return parameters_with(self.state(), weights, frozen, self.living_optimizers)

    def _gradient(self, parameter: Any) -> Any:
        # Megatron accumulates in main_grad.
        main = getattr(parameter, "main_grad", None) if self.has_main_grad else None
        return self.gradient(parameter) if main is None else main

    def _observe(self, parameters: Parameters) -> None:
        plan, collection, weights = self.plan, self.collection, parameters.watched
        self._with_gradients = [weight for weight in weights if not self._is_left_out(weight.parameter)]
        fields_by_chunk = [with_fields(plan, chunk, self.named_modules(one)) for chunk, one in enumerate(self.models)]
        chunks, targets = (
            [modules for modules, _ in fields_by_chunk],
            [target for _, those in fields_by_chunk for target in those],
        )
        self._first_steps = FirstSteps(
            plan, targets, has_parameters=bool(self._with_gradients), is_compiled=self.is_compiled
        )
        self._warn(notes_on_targets(plan, targets, [self._names(model) for model in self.models]))
        if plan.wants_parameters:
            self._warn(parameters.notes())
        for chunk, modules in enumerate(chunks):
            if watched := [one for one in modules if one[2]]:
                self._observers.append(self.hooks_on_modules(chunk, watched))
        if plan.wants("gradients") or plan.wants("micro_batch_gradients"):
            of_micro_batches = plan.wants("micro_batch_gradients")
            self._observers.append(self.hooks_on_gradients(self._with_gradients, each_micro_batch=of_micro_batches))
        if plan.wants("collectives") and (hooks := self.hooks_on_collectives(plan)) is not None:
            self._observers.append(hooks)
        if plan.wants("structure") or plan.wants("stacks"):
            named = [(f"{chunk}:{name}", one) for chunk, modules in enumerate(chunks) for name, one, _ in modules]
            self._structure = Structure(
                collection,
                named,
                self.tensor_class,
                self.module_class,
                has_structure=plan.wants("structure"),
                has_stacks=plan.wants("stacks"),
            )
        self._around_step = OptimizerStepObserver(collection, plan, self.state(), weights, self._with_gradients)

    def _warn(self, notes: Iterable[str]) -> None:
        """Log lines that were not logged before, as for a plan whose statistics are changed."""
        for note in notes:
            if note not in self._warned:
                self._warned.add(note)
                _log.warning("%s", note)

    def _names(self, model: Any) -> list[list[str]]:
        return [[name for name, _ in named(model)] for named in (self.named_modules, self.named_parameters)]

    def _remove_observers(self) -> None:
        for observer in self._observers:
            observer.remove()
        self._observers = []
        self._around_step = None
        if self._structure is not None:
            self._structure.remove()
            self._structure = None

    def begin_end_of_step(self) -> None:
        """Measure what there is just before the optimizer steps; it never raises."""
        if self._around_step is not None:
            self.collection.harmless("the optimizer", self._around_step.before)()

    def _note(self, where: str, error: Exception) -> None:
        self.collection.errors.note(where, error)

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
        self.files.add(self.step, rows)
        # What failed was logged with its reason.
        if not self.collection.errors:
            self._warn(self._first_steps.notes(self.step, rows, has_gradients=self.has_gradients()))
        self.alerts = self._alarm.feed(rows)
        if self.alerts:
            self._called_when_alerted(self.alerts)


def as_models(model: Any, module_class: type) -> list[Any]:
    """Return a model, or a list of them, as a list. Raises ConfigError for anything else."""
    models = [model] if isinstance(model, module_class) else model
    if not isinstance(models, (list, tuple)) or not models or not all(isinstance(one, module_class) for one in models):
        module = module_class.__module__.rpartition(".nn.")[0]
        raise ConfigError("model", type(model).__name__, f"a {module}.nn.{module_class.__name__}, or a list of them")
    return list(models)
