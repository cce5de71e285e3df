"""What of a model is watched: the modules and parameters that a plan names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.module_hooks import Fields
from msprobe_hooks.extensions.monitor.watch.msprobe_names import msprobe_short_names


class Side(NamedTuple):
    """What watches a field of a target, and where it is found in a run: its task, and its name behind the module's."""

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
