"""Whether two runs may be compared: they start from the same weights and data, as far as their first step shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msprobe_hooks.extensions.monitor.series.tables import Watched
from pytest_msprobe.extensions.monitor.golden.paired_series import Twins
from pytest_msprobe.extensions.monitor.series_kinds import GRADIENTS, Kind, is_input, kind_of

# An input is given, not computed: it differs by a rounding to bfloat16 at most. What is computed differs by a few.
_OTHER_INPUT, _OTHER_TENSORS = 2.0**-7, 2.0**-6

# So many tensors show what a run starts with, whatever its size.
_ASKED = 24


def other_start(tensors: Sequence[Watched], read: Callable[[Watched], Twins]) -> str | None:
    """Return what of two runs is not the same at the first step that both have, None where they start alike.

    ``tensors`` are those of both, in the order computed. The inputs of the first module show whether the data are the
    same. Where they are not watched, most of the first tensors have to be apart: a fault is in one and those after it.
    """
    forward = [tensor for tensor in tensors if kind_of(tensor) is Kind.ACTIVATION][:_ASKED]
    weights = [tensor for tensor in tensors if kind_of(tensor) is Kind.PARAMETER][:_ASKED]
    backward = [tensor for tensor in tensors if kind_of(tensor) in GRADIENTS][:_ASKED]
    if weights and (found := _most(weights, read)):
        return f"the weights differ: {found}"
    if forward and is_input(forward[0]):
        apart = _apart(read(forward[0]))
        return f"the data differ: {_described(forward[0], apart)}" if apart > _OTHER_INPUT else None
    if found := _most(forward or backward, read):
        return f"data or weights differ: {found}"
    return None


def are_alike(tensors: Sequence[Watched], read: Callable[[Watched], Twins]) -> bool:
    """Return whether the first tensors of two runs are the same at the first step that both have."""
    return all(_apart(read(tensor)) <= _OTHER_TENSORS for tensor in tensors[:_ASKED])


def _most(tensors: Sequence[Watched], read: Callable[[Watched], Twins]) -> str | None:
    """Name the first of the tensors that are apart, where most are."""
    apart = {tensor: _apart(read(tensor)) for tensor in tensors}
    far = [tensor for tensor in tensors if apart[tensor] > _OTHER_TENSORS]
    return _described(far[0], apart[far[0]]) if 2 * len(far) > len(tensors) else None


def _apart(both: Twins) -> float:
    """Return the largest relative difference of a tensor's statistics at the first step."""
    return max((float(both.difference(name)[0]) for name in both.continuous), default=0.0) if len(both.steps) else 0.0


def _described(tensor: Watched, apart: float) -> str:
    return f"{tensor.task} {tensor.name} differs by {100 * apart:.2g} % at the first step"
