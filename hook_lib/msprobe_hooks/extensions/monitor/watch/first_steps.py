"""Selection of the modules and parameters that are watched, their short names, and what the first steps lacked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msprobe_hooks.extensions.monitor.series.writer import Row
from msprobe_hooks.extensions.monitor.watch.config import OF_PARAMETERS, Plan
from msprobe_hooks.extensions.monitor.watch.step_statistics import Fields
from msprobe_hooks.messages import listed

_OF_MODULES: Final = ("activations", "activation_gradients")
_OF_STATE: Final = ("updates", "moments")
_COMPILED: Final = "; torch.compile is in use, and compiled modules run no hooks"
_NO_GRADIENT_YET: Final = "no parameter had a gradient yet, and before that the optimizer keeps no state"

# In this order; the first that is found decides.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (r"layers?\.(.*)", r"embeddings?\.(.*)", r"(final.*)", r"(output.*)", r"(norm.*)")
)


class Side(NamedTuple):
    """Watcher of a field of a target, and its place in a run: its task, and its name behind the module's."""

    what: str
    task: str
    side: str


SIDES: Final = {
    "input": Side("activations", "actv", "input"),
    "output": Side("activations", "actv", "output"),
    "input_grad": Side("activation_gradients", "actv_grad", "input"),
    "output_grad": Side("activation_gradients", "actv_grad", "output"),
}
#: What is watched of modules.
WHATS: Final = tuple(dict.fromkeys(side.what for side in SIDES.values()))


@dataclass(frozen=True, slots=True)
class Target:
    """A module that ``targets`` names: the fields it asks for, none meaning all, and those that are watched."""

    name: str
    chunk: int
    module: str
    asked: Mapping[str, str]
    fields: Fields


def with_fields(
    plan: Plan, chunk: int, modules: Iterable[tuple[str, Any]]
) -> tuple[list[tuple[str, Any, Fields]], list[Target]]:
    """Return name, module and wanted fields of modules in a chunk, and which of them are targets.

    Nothing is wanted of modules that are not targets, unless the plan has all modules.
    """
    named = list(modules)
    full = [name for name, _ in named]
    names = msprobe_short_names(full) if plan.squashes_names else full
    allowed: Fields = {field: None for field, side in SIDES.items() if plan.wants(side.what)}
    found, targets = [], []
    for name, (full_name, module) in zip(names, named, strict=True):
        keys = (f"{chunk}:{name}", f"{chunk}:{full_name}", name, full_name)
        key = next((key for key in keys if key in plan.targets), None)
        fields = allowed if plan.has_all_modules else {}
        if key is not None:
            asked = plan.targets[key]
            fields = {field: asked[field] for field in allowed if field in asked} if asked else allowed
            targets.append(Target(key, chunk, name, asked, fields))
        found.append((name, module, fields))
    return found, targets


def is_targeted(plan: Plan, chunk: int, names: Iterable[str]) -> bool:
    """Return whether a parameter, by any of its names, is among those that are watched."""
    return plan.has_all_modules or any(_is_inside(chunk, name, target) for target in plan.targets for name in names)


def unknown_targets(plan: Plan, names: Iterable[Iterable[Sequence[str]]]) -> list[str]:
    """Return the targets that are nothing in the model; ``names`` are, for each chunk, lists of what is in it."""
    known: list[tuple[int, str]] = []
    for chunk, lists in enumerate(names):
        for full in lists:
            known += [(chunk, name) for name in [*full, *msprobe_short_names(full)]]
    return [target for target in plan.targets if not any(_is_inside(*one, target) for one in known)]


def _is_inside(chunk: int, name: str, target: str) -> bool:
    """Return whether a target is a name or the beginning of its path.

    A target may name its chunk, as ``1:layers.0``; with no name behind that, or none at all, it is everything in it.
    """
    return target in ("", f"{chunk}:") or any(f"{one}.".startswith(f"{target}.") for one in (name, f"{chunk}:{name}"))


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

    Without ``has_parameters`` there are none among the targets, or another rank measures them. With ``is_compiled``
    modules may have run without their hooks.
    """

    def __init__(
        self,
        plan: Plan,
        targets: Sequence[Target] = (),
        *,
        has_parameters: bool = False,
        is_compiled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan = plan
        self._targets = targets
        self._has_parameters = has_parameters
        self._is_compiled = is_compiled
        self._tasks: set[str] = set()
        self._count = 0
        self._with_gradients = 0

    def notes(self, step: int, rows: Sequence[Row], *, has_gradients: bool = True) -> Iterator[str]:
        """Yield a line for each kind of thing that should have come by now; nothing when the first steps are over.

        Without ``has_gradients`` no parameter has a gradient at this step.
        """
        if self._with_gradients == _MOST_STEPS:
            return
        self._count += 1
        self._with_gradients += has_gradients
        self._tasks.update(row.task for row in rows)
        compiled = _COMPILED if self._is_compiled() else ""
        for what, (tasks, reason, steps) in _BROUGHT.items():
            if self._expects(what) and self._tasks.isdisjoint(tasks):
                if what in _OF_STATE and not self._with_gradients and self._count == steps:
                    yield f"step {step} had no {what}: {_NO_GRADIENT_YET}"
                elif (self._with_gradients if what in _OF_STATE else self._count) == steps:
                    yield f"step {step} had no {what}: {reason}{compiled if what in _OF_MODULES else ''}"
        if self._count == 1:
            yield from self._missing_targets(step, rows, compiled)

    def _missing_targets(self, step: int, rows: Sequence[Row], compiled: str) -> Iterator[str]:
        by_reason: dict[str, list[str]] = {}
        for target in self._targets:
            if fields := _missing(target, rows, self._tasks):
                was_called = any(_is_of(target, row, side.side) for row in rows for side in SIDES.values())
                only_inputs = all(field == "input_grad" for field in fields)
                reason = _why(was_called=was_called, only_inputs=only_inputs)
                by_reason.setdefault(reason, []).append(f"{target.name!r} ({', '.join(fields)})")
        for reason, names in by_reason.items():
            yield f"step {step} had nothing of targets {listed(names)}: {reason}{compiled}"

    def _expects(self, what: str) -> bool:
        """Return whether something is wanted of modules or parameters that are watched."""
        if not self._plan.wants(what):
            return False
        if what in OF_PARAMETERS:
            return self._has_parameters
        asked = {SIDES[field].what for target in self._targets for field in target.fields}
        return self._plan.has_all_modules or what in asked


def _why(*, was_called: bool, only_inputs: bool) -> str:
    if not was_called:
        return "not called in training mode, or no gradient"
    return "its input takes no gradient" if only_inputs else "no gradient reached it"


def _missing(target: Target, rows: Iterable[Row], tasks: Collection[str]) -> list[str]:
    """Return the fields without a row, where their task has some; of a target that asks for all, none if one came."""
    begun = {field: SIDES[field] for field in target.fields if SIDES[field].task in tasks}
    found = {
        field
        for row in rows
        for field, side in begun.items()
        if row.task == side.task and _is_of(target, row, side.side)
    }
    return [] if found and not target.asked else [field for field in begun if field not in found]


def _is_of(target: Target, row: Row, side: str) -> bool:
    """Return whether a row is of a side of a target, and not of a module inside it that is called as that side."""
    named = rf"{re.escape(target.module)}(\[\d+\])?\.{side}(_[^.]*)?"
    return row.vpp_stage == target.chunk and re.fullmatch(named, row.name) is not None


def msprobe_short_names(names: Sequence[str]) -> list[str]:
    """Return a short name for each; those that would be called alike keep their full ones."""
    short = [_short(name) for name in names]
    count = Counter(short)
    return [one if count[one] == 1 else full for one, full in zip(short, names, strict=True)]


def _short(name: str) -> str:
    found = next((match for pattern in _PATTERNS if (match := pattern.search(name))), None)
    return found[1] if found else name
