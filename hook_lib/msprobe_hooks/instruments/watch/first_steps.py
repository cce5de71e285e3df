"""What was asked for and has not come when the first steps are over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msprobe_hooks.instruments.series.writer import Row
from msprobe_hooks.instruments.watch.config import Plan
from msprobe_hooks.instruments.watch.quantities import OF_PARAMETERS
from msprobe_hooks.instruments.watch.selection import SIDES, Target
from msprobe_hooks.messages import listed


class Brought(NamedTuple):
    """The tasks that hold what is watched, why a step may bring none of it, and after how many steps it has come."""

    tasks: tuple[str, ...]
    reason: str
    steps: int = 1


_BROUGHT: Final = {
    "activations": Brought(("actv",), "no module was called in training mode"),
    "activation_gradients": Brought(("actv_grad",), "no backward pass went through a module in training mode"),
    "gradients": Brought(("grad_unreduced", "grad_reduced"), "no parameter had a gradient"),
    "micro_batch_gradients": Brought(("grad_unreduced",), "no parameter had a gradient"),
    "parameters": Brought(("param_origin", "param_updated"), "the optimizer made no step"),
    "updates": Brought(("adam_update",), "the optimizer keeps no Adam moments to compute them from"),
    "moments": Brought(("exp_avg", "exp_avg_sq"), "the optimizer keeps no exp_avg and no exp_avg_sq", steps=2),
}
_MOST_STEPS: Final = max(one.steps for one in _BROUGHT.values())


class FirstSteps:
    """Compares what the first collected steps bring with what a plan and its targets ask for.

    Without ``has_parameters`` there are none among the targets, or another rank measures them.
    """

    def __init__(self, plan: Plan, targets: Sequence[Target] = (), *, has_parameters: bool = False) -> None:
        self._plan = plan
        self._targets = targets
        self._has_parameters = has_parameters
        self._tasks: set[str] = set()
        self._count = 0

    def notes(self, step: int, rows: Sequence[Row]) -> Iterator[str]:
        """Yield a line for each kind of thing that should have come by now; nothing when the first steps are over."""
        if self._count == _MOST_STEPS:
            return
        self._count += 1
        self._tasks.update(row.task for row in rows)
        for what, (tasks, reason, steps) in _BROUGHT.items():
            if steps == self._count and self._expects(what) and self._tasks.isdisjoint(tasks):
                yield f"step {step} had no {what}: {reason}"
        missing = ((one.name, _missing(one, rows, self._tasks)) for one in self._targets if self._count == 1)
        names = [f"{name!r} ({', '.join(fields)})" for name, fields in missing if fields]
        if names:
            yield f"step {step} had nothing of targets {listed(names)}: not called in training mode, or no gradient"

    def _expects(self, what: str) -> bool:
        """Return whether something is wanted of modules or parameters that are watched."""
        if not self._plan.wants(what):
            return False
        if what in OF_PARAMETERS:
            return self._has_parameters
        asked = {SIDES[field].what for target in self._targets for field in target.fields}
        return self._plan.has_all_modules or what in asked


def _missing(target: Target, rows: Iterable[Row], tasks: Collection[str]) -> list[str]:
    """Return the fields without a row, where their task has some; of a target that asks for all, none if one came."""
    begun = {
        field: (SIDES[field].task, f"{target.module}.{SIDES[field].side}")
        for field in target.fields
        if SIDES[field].task in tasks
    }
    found = {
        field
        for row in rows
        if row.vpp_stage == target.chunk
        for field, (task, beginning) in begun.items()
        if row.task == task and row.name.startswith(beginning)
    }
    return [] if found and not target.asked else [field for field in begun if field not in found]
