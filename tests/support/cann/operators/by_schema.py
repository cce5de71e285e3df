"""Arguments of operators by their schemas: names, order and defaults are those that torch_npu declares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.support.npu.torch_npu_operators import read_extract

#: The arguments of one call, by name; what its overload lacks has another one's default, or is None.
Arguments = SimpleNamespace


def by_schema(definition: Callable[[Arguments], Any]) -> Callable[..., Any]:
    """Return the operator of this name, called as torch_npu declares it, from what it computes of its arguments.

    Tensors that a call names for the results are written.
    """
    name = definition.__name__

    @functools.wraps(definition)
    def operator(*args: Any, **kwargs: Any) -> Any:
        overload, values = _bound(name, args, kwargs)
        results = definition(Arguments(**_defaults(name) | values))
        return _written([values[target] for target in overload.targets], results) if overload.targets else results

    return operator


@dataclass(frozen=True)
class _Overload:
    positional: tuple[str, ...]
    keywords: frozenset[str]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    targets: tuple[str, ...]

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        named = {*self.positional[: len(args)], *kwargs}
        is_bindable = len(args) <= len(self.positional) and len(named) == len(args) + len(kwargs)
        return is_bindable and kwargs.keys() <= self.keywords and self.required <= named


def _bound(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Overload, dict[str, Any]]:
    """Return the first overload that accepts a call, the newest first, and the call's arguments by name."""
    for overload in _overloads(name):
        named = _with_targets(overload, kwargs)
        if overload.accepts(args, named):
            return overload, dict(zip(overload.positional, args, strict=False)) | named
    raise TypeError(f"{name} has no overload for {len(args)} arguments and {', '.join(kwargs) or 'no keywords'}")


def _with_targets(overload: _Overload, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keywords with ``out=`` of several tensors as the overload's own names for them."""
    if len(overload.targets) < 2 or "out" not in kwargs:
        return kwargs
    others = {name: value for name, value in kwargs.items() if name != "out"}
    return others | dict(zip(overload.targets, kwargs["out"], strict=True))


@functools.cache
def _overloads(name: str) -> list[_Overload]:
    operator = _operators()[name]
    # torch parses no names of dimensions, which no recorded call has.
    return [_overload(schema) for schema in (*operator.schemas, *operator.earlier) if "Dimname" not in schema]


def _overload(schema: str) -> _Overload:
    arguments = torch._C.parse_schema(f"npu::{schema}").arguments
    return _Overload(
        positional=tuple(each.name for each in arguments if not each.kwarg_only),
        keywords=frozenset(each.name for each in arguments),
        required=frozenset(each.name for each in arguments if not each.has_default_value()),
        defaults={each.name: each.default_value for each in arguments if each.has_default_value()},
        targets=tuple(each.name for each in arguments if each.is_out),
    )


@functools.cache
def _defaults(name: str) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for overload in reversed(_overloads(name)):
        defaults |= dict.fromkeys(overload.keywords - defaults.keys()) | overload.defaults
    return defaults


_operators = functools.cache(read_extract)


def _written(targets: list[Tensor], results: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
        if result is not target:
            target.copy_(result)
    return tuple(targets) if len(targets) > 1 else targets[0]
