"""The parameters of a model that are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.msprobe_names import msprobe_short_names
from msprobe_hooks.extensions.monitor.watch.selection import is_targeted
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection


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
