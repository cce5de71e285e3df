"""Declarations of operators with their golden definitions: all that checks and comparisons know of each.

    @golden("NPU.npu_mine", OpInfo(in_place=True), Effects(defined=1))
    def npu_mine(x: Tensor, out: Tensor) -> Tensor: ...

`pytest_msprobe.hookspecs.pytest_msprobe_register_references` says how a definition is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar

from msprobe_hooks.dump.effects import NO_EFFECTS, Effects, declare_effects
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.references import ReferenceRegistry

Definition = TypeVar("Definition", bound=Callable[..., Any])


class Kernel(Protocol):
    """A device's own kernel for a definition, which may stand in where there is none.

    ``stand_in`` is why the definition stood in at the last call; it is empty where the kernel computed.
    """

    stand_in: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take the definition's arguments and return what it returns."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by its API ``name``, such as NPU.npu_rms_norm, and what its golden definition declares.

    ``recorded``: whether recordings list it as an API of its library. ``on_gpu`` makes of the definition the kernel
    that a GPU has for it. Where the definition returns None, nothing is promised of that result.
    """

    name: str
    definition: Callable[..., Any]
    info: OpInfo
    effects: Effects
    recorded: bool
    on_gpu: Callable[[Callable[..., Any]], Kernel] | None


_DECLARED: dict[str, Operator] = {}


def golden(
    name: str,
    info: OpInfo | None = None,
    effects: Effects = NO_EFFECTS,
    *,
    recorded: bool = True,
    on_gpu: Callable[[Callable[..., Any]], Kernel] | None = None,
) -> Callable[[Definition], Definition]:
    """Declare a function as the golden definition of the API ``name``, with what is known of it; see `Operator`."""

    def declare(definition: Definition) -> Definition:
        key = operation(name.partition(".")[2])
        _DECLARED[key] = Operator(name, definition, info or OpInfo(), effects, recorded, on_gpu)
        if effects is not NO_EFFECTS:
            declare_effects(key, effects)
        return definition

    return declare


@cache
def declared(name: str) -> Operator | None:
    """Return the declaration of an operation, by its name without type and overload; None where there is none."""
    if name not in _DECLARED and (module := _modules().get(name)) is not None:
        import_module(module)
    return _DECLARED.get(name)


def declarations() -> Iterator[Operator]:
    """Yield the declarations of the modules that are imported."""
    yield from _DECLARED.values()


@cache
def _modules() -> dict[str, str]:
    """Return the module that declares each operation of the extensions, by its name without type."""
    return {operation(name.partition(".")[2]): module for name, module in ReferenceRegistry().modules()}
