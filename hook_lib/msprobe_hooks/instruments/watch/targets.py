"""What of a model is watched: the modules and parameters that a plan names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msprobe_hooks.instruments.watch.config import Plan
from msprobe_hooks.instruments.watch.modules import Fields
from msprobe_hooks.instruments.watch.squashing import squashed

_ASKED_BY = {
    "input": "activations",
    "output": "activations",
    "input_grad": "activation_gradients",
    "output_grad": "activation_gradients",
}


def with_fields(plan: Plan, chunk: int, modules: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any, Fields]]:
    """Yield name, module and wanted fields of modules in a chunk; nothing is wanted of those that are not targets."""
    named = list(modules)
    full = [name for name, _ in named]
    names = squashed(full) if plan.squashes_names else full
    allowed = [field for field, what in _ASKED_BY.items() if plan.wants(what)]
    for name, (full_name, module) in zip(names, named, strict=True):
        keys = (f"{chunk}:{name}", f"{chunk}:{full_name}", name, full_name)
        target = next((plan.targets[key] for key in keys if key in plan.targets), None)
        fields: Mapping[str, str | None] = {}
        if target is not None:
            fields = {field: target[field] for field in allowed if field in target}
        elif plan.has_all_modules:
            fields = dict.fromkeys(allowed)
        yield name, module, fields


def is_targeted(plan: Plan, chunk: int, names: Iterable[str]) -> bool:
    """Tell whether a parameter, by any of its names, is among those that are watched."""
    return plan.has_all_modules or any(_is_inside(chunk, name, target) for target in plan.targets for name in names)


def unknown_targets(plan: Plan, names: Iterable[Iterable[Sequence[str]]]) -> list[str]:
    """Return the targets that are nothing in the model; ``names`` are, for each chunk, lists of what is in it."""
    known: list[tuple[int, str]] = []
    for chunk, lists in enumerate(names):
        for full in lists:
            known += [(chunk, name) for name in [*full, *squashed(full)]]
    return [target for target in plan.targets if not any(_is_inside(*one, target) for one in known)]


def _is_inside(chunk: int, name: str, target: str) -> bool:
    """Tell whether a target, which may name its chunk as ``1:layers.0``, is a name or the beginning of its path."""
    return any(f"{one}.".startswith(f"{target}.") for one in (name, f"{chunk}:{name}"))
