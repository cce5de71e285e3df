"""A training of MindSpore that is watched, in PyNative mode: cells, and what an optimizer is called with.

Numbers are taken on the host at once, since MindSpore's hooks see tensors that the next operation may overwrite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mindspore import Tensor, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.series.writing import Row
from msprobe_hooks.instruments.watch.config import Plan
from msprobe_hooks.instruments.watch.errors import Errors
from msprobe_hooks.instruments.watch.host_statistics import measure
from msprobe_hooks.instruments.watch.run_files import RunFiles
from msprobe_hooks.mindspore.context import process_rank, require_pynative
from msprobe_hooks.mindspore.values import host

WHAT: Final = ("activations", "gradients", "moments", "parameters")

# What MindSpore's optimizers call Adam's moments.
_MOMENTS = {"exp_avg": ("moments1", "moment1", "exp_avg"), "exp_avg_sq": ("moments2", "moment2", "exp_avg_sq")}


class MindSporeWatcher:
    """Watches cells and the optimizer whose calls end the steps of the training.

    ``rows`` are those of the latest step that was collected. Without an optimizer, `end_step` is to be called at the
    end of each step.
    """

    def __init__(self, models: Sequence[nn.Cell], optimizer: Any, base: Path, *, first_step: int = 0) -> None:
        self.rank = process_rank()
        self.step = first_step
        self.rows: Sequence[Row] = ()
        self.errors = Errors()
        self._models = models
        self._optimizer = optimizer
        self._files = RunFiles(base, self.rank)
        self._plan = Plan()
        self._is_on = False
        self._collected = 0
        self._values: dict[tuple[str, int, str, int | None], tuple[float, ...]] = {}
        self._handles: list[Any] = []
        self._cells: list[_Cells] = []

    def follow(self, plan: Plan) -> None:
        """Watch by a plan. Raises ConfigError for what MindSpore is not watched for, MonitorError for the folder."""
        require_pynative()
        if self._optimizer is not None and not hasattr(self._optimizer, "register_forward_pre_hook"):
            raise ConfigError("optimizer", self._optimizer, "an optimizer of mindspore")
        for what in sorted(plan.what - {*WHAT}):
            raise ConfigError("what", what, f"some of {', '.join(WHAT)}, for MindSpore")
        for key, is_given in (("targets", plan.targets), ("squashes_names", plan.squashes_names)):
            if is_given:
                raise ConfigError(key, is_given, "no such option for MindSpore")
        if plan.ranks and (self.rank or 0) not in plan.ranks:
            return
        self._plan = plan
        self._files.follow(plan)
        if plan.wants("activations"):
            self._cells = [_Cells(self, chunk, model) for chunk, model in enumerate(self._models)]
        if self._optimizer is not None:
            before, after = self._harmless("the optimizer", self._before), self._harmless("the optimizer", self._after)

            def end_call(*_: Any) -> None:
                after()
                self.end_step()

            self._handles = [
                self._optimizer.register_forward_pre_hook(lambda _, given: before(given)),
                self._optimizer.register_forward_hook(end_call),
            ]
        self._begin_step()

    @property
    def folder(self) -> Path | None:
        """Where files are written, None where there are none."""
        return self._files.folder

    def end_step(self) -> None:
        """End a step: write what it brought. The optimizer's call ends in this; it never raises."""
        self._harmless("what a step brought", self._take)()
        self.step += 1
        self._begin_step()

    def close(self) -> None:
        """Take all hooks off and finish the files. Raises MonitorError where they cannot be written."""
        self._is_on = False
        for handle in [*self._handles, *(handle for cells in self._cells for handle in cells.handles)]:
            handle.remove()
        self._handles, self._cells = [], []
        self._files.close()

    def take_activations(self, chunk: int, name: str, micro_step: int, side: str, given: Any) -> None:
        """Measure what goes into a call of a cell, or comes out of it."""
        values = given if isinstance(given, tuple) else (given,)
        alone = len(values) == 1 and isinstance(values[0], Tensor)
        tensors = [(side, values[0])] if alone else _numbered(side, values)
        for side_name, tensor in tensors:
            self._measure("actv", chunk, f"{name}.{side_name}", tensor, micro_step)

    def watching(self, where: str, hook: Callable[..., None]) -> Callable[..., None]:
        """Return a hook that looks at what happens in the steps that are collected, and never raises."""
        return self._harmless(where, hook)

    def _before(self, given: tuple[Any, ...]) -> None:
        parameters = list(self._optimizer.parameters)
        if self._plan.wants("gradients"):
            self._measure_all("grad_reduced", parameters, given[0])
        if self._plan.wants("moments"):
            for task, names in _MOMENTS.items():
                moments = next((found for name in names if (found := getattr(self._optimizer, name, None))), ())
                self._measure_all(task, parameters, moments)
        if self._plan.wants("parameters"):
            self._measure_all("param_origin", parameters, parameters)

    def _after(self) -> None:
        if self._plan.wants("parameters"):
            parameters = list(self._optimizer.parameters)
            self._measure_all("param_updated", parameters, parameters)

    def _measure_all(self, task: str, parameters: Iterable[Any], tensors: Iterable[Any]) -> None:
        for parameter, tensor in zip(parameters, tensors, strict=False):
            if isinstance(tensor, Tensor):
                self._measure(task, 0, parameter.name, tensor)

    def _measure(self, task: str, chunk: int, name: str, tensor: Tensor, micro_step: int | None = None) -> None:
        values = measure(host(tensor), self._plan.statistics, self._plan.eps)
        self._values[task, chunk, name, micro_step] = values

    def _take(self) -> None:
        self.rows = [
            Row(task, chunk, name, self.step, micro_step, values)
            for (task, chunk, name, micro_step), values in self._values.items()
        ]
        self._collected += 1
        self._files.add(self.step, self.rows)

    def _begin_step(self) -> None:
        self._values = {}
        for cells in self._cells:
            cells.begin_step()
        is_wanted = self._collected < self._plan.collect_times and self._plan.takes(self.step)
        self._is_on = is_wanted and bool(self._plan.what)

    def _harmless(self, where: str, hook: Callable[..., None]) -> Callable[..., None]:
        kept = self.errors.kept_from(where)

        def run(*args: Any) -> None:
            if self._is_on:
                with kept:
                    hook(*args)

        return run


class _Cells:
    """The hooks on the cells of a model; a call of the model itself begins a micro batch."""

    def __init__(self, watcher: MindSporeWatcher, chunk: int, model: nn.Cell) -> None:
        self._watcher = watcher
        self._chunk = chunk
        self._model = model
        self._micro_step = -1
        self._calls: Counter[tuple[str, int]] = Counter()
        self._running: list[tuple[nn.Cell, str, int]] = []
        self.handles: list[Any] = []
        for name, cell in model.cells_and_names():
            enter = watcher.watching(f"cell {name!r}", self._entering(name))
            leave = watcher.watching(f"cell {name!r}", self._leave)
            self.handles += [
                cell.register_forward_pre_hook(lambda cell, given, enter=enter: enter(cell, given)),
                cell.register_forward_hook(lambda cell, _, output, leave=leave: leave(cell, output)),
            ]

    def begin_step(self) -> None:
        """Begin to count micro batches and calls anew."""
        self._micro_step = -1
        self._calls.clear()
        self._running.clear()

    def _entering(self, name: str) -> Callable[[nn.Cell, Any], None]:
        def enter(cell: nn.Cell, given: Any) -> None:
            if not cell.training:
                return
            if cell is self._model:
                self._micro_step += 1
            micro_step = max(self._micro_step, 0)
            number = self._calls[name, micro_step]
            self._calls[name, micro_step] += 1
            called = f"{name}[{number}]" if number else name
            self._running.append((cell, called, micro_step))
            self._watcher.take_activations(self._chunk, called, micro_step, "input", given)

        return enter

    def _leave(self, cell: nn.Cell, output: Any) -> None:
        # Calls above it never returned: they raised.
        while self._running:
            running, called, micro_step = self._running.pop()
            if running is cell:
                self._watcher.take_activations(self._chunk, called, micro_step, "output", output)
                return


def _numbered(name: str, values: Iterable[Any]) -> Iterator[tuple[str, Tensor]]:
    for place, value in enumerate(values):
        if isinstance(value, Tensor):
            yield f"{name}_{place}", value
        elif isinstance(value, (tuple, list)):
            yield from _numbered(f"{name}_{place}", value)


def as_cells(given: Any) -> list[nn.Cell]:
    """Return a model, or a list of them, as a list. Raises ConfigError for anything else."""
    models = [given] if isinstance(given, nn.Cell) else given
    if not isinstance(models, (list, tuple)) or not models or not all(isinstance(one, nn.Cell) for one in models):
        raise ConfigError("model", type(given).__name__, "a mindspore.nn.Cell, or a list of them")
    return list(models)
