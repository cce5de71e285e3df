"""Operators that a card has not, and that its backend lets the CPU compute.

Such a backend registers a fallback for whatever it has no kernel for. torch_npu's warns once for each operator and
process, and on C++'s standard error, so which record used one is asked of torch's dispatcher instead.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.replay.trials.trial import Trial

# How torch computes an operator by others on any device that has no kernel for it: the first by the variant that
# writes its result, `exp` by `exp.out`; the others in whatever way.
_BY_WRITING = "CompositeExplicitAutogradNonFunctional"
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


def has_cpu_fallback(device: torch.device) -> bool:
    """Return whether a device's backend has the CPU compute the operators that it lacks."""
    return device.type != "cpu" and bool(torch._C._dispatch_has_backend_fallback(_key(device.type)))


def ops_without_kernel(trial: Trial, direction: Direction) -> tuple[str, ...]:
    """Run one direction of a judged trial's call again, and return the operators that the card left to the CPU.

    The judged run itself is not watched: some derivatives take another formula where torch is watched. Not seen is what
    the card's kernels, and operators that torch computes by others, leave to the CPU inside. Raises as the trial does.
    """
    again, watch = Trial(trial.subject, trial.device), _Watch(trial.device.location().type)
    if direction == "forward":
        with watch:
            again.target  # noqa: B018
    elif again.target:
        with watch:
            again.target_gradients  # noqa: B018
    return tuple(watch.lacking)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, ``lacking`` collects the operators that a kind of device is asked for and has not."""

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lacking: dict[str, None] = {}
        self._type = device_type

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave Dynamo alone: it compiles nothing here, and hiding from it costs its import, a second and a half."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator."""
        kwargs = kwargs or {}
        lacking = _lacking(func, self._type)
        if lacking and self._is_asked((args, kwargs)):
            self.lacking[lacking] = None
        return func(*args, **kwargs)

    def _is_asked(self, arguments: object) -> bool:
        """Return whether arguments are the device's; those of sparse tensors have kernels of their own."""
        leaves = [value for value in tree_leaves(arguments) if isinstance(value, (torch.Tensor, torch.device))]
        tensors = [value for value in leaves if isinstance(value, torch.Tensor)]
        places = (value.device if isinstance(value, torch.Tensor) else value for value in leaves)
        return any(place.type == self._type for place in places) and all(
            tensor.layout is torch.strided for tensor in tensors
        )


@functools.cache
def _lacking(func: Any, device_type: str) -> str:
    """Return the operator that the CPU computes where a device is asked for ``func``; empty where there is none."""

    def has(*keys: str) -> bool:
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key) for key in keys)

    if has(_key(device_type), *_COMPOSITE) or torch.Tag.view_copy in func.tags:
        return ""
    if not has(_BY_WRITING):
        return str(func.name())
    writing = _writing(func)
    return "" if writing is None else _lacking(writing, device_type)


def _writing(func: Any) -> Any:
    """Return the variant of an operator that writes its result into an argument, None where it has none."""
    namespace, _, name = func._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return next(
        (candidate for candidate in overloads if _writes(candidate) and _inputs(candidate) == _inputs(func)), None
    )


def _writes(func: Any) -> bool:
    return any(argument.is_out for argument in func._schema.arguments)


def _inputs(func: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in func._schema.arguments if not argument.is_out]


def _key(device_type: str) -> Any:
    return torch._C._dispatch_key_for_device(device_type)
