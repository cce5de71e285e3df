"""What a model is called with, value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msprobe_hooks.instruments.environment.started import TensorFact

_DEEPEST = 32


def values_given(
    args: tuple[Any, ...], kwargs: dict[str, Any], fact_of: Callable[[Any], TensorFact | None]
) -> dict[str, TensorFact | str]:
    """Return the values of a call by place, as ``args.0`` or ``kwargs.inputs.mask``.

    ``fact_of`` describes a tensor or an array, and returns None for what is neither.
    """
    return dict([*_leaves("args", args, 0, fact_of), *_leaves("kwargs", kwargs, 0, fact_of)])


def _leaves(
    path: str, value: Any, depth: int, fact_of: Callable[[Any], TensorFact | None]
) -> Iterator[tuple[str, TensorFact | str]]:
    fact = fact_of(value)
    if fact is not None:
        yield path, fact
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield path, f"{type(value).__name__}: {value}" if isinstance(value, str) else str(value)
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}", each, depth + 1, fact_of)
    elif depth < _DEEPEST and isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _leaves(f"{path}.{place}", each, depth + 1, fact_of)
