"""Growth that is a function's own: an output's norm far above the inputs' where nothing is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msprobe_hooks.dump.anomalies.anomaly import Finding, api_of
from msprobe_hooks.dump.schema import TensorElement

# Roots of numbers below 1 are larger than these, and below 1 as well.
_ROOTS = frozenset({"sqrt"})
# What optimizers do with second moments, which are squares of small numbers: an epsilon may be larger than these.
_OF_MOMENTS = frozenset("sqrt rsqrt reciprocal div divide true_divide truediv rtruediv pow add".split())

_IN_OPTIMIZER = re.compile(r"File [^,]*optim[^,]*,")


def is_expected(finding: Finding, name: str, is_of_optimizer: Callable[[], bool]) -> bool:
    """Return whether a norm that grew is explained by the API; ``is_of_optimizer`` is asked only where it matters."""
    if finding.growth is None:
        return False
    api = api_of(name).rpartition(".")[2].strip("_").removeprefix("foreach_")
    if api in _ROOTS and _are_at_most_one(finding):
        return True
    return api in _OF_MOMENTS and is_of_optimizer()


def is_of_optimizer(frames: Iterable[str]) -> bool:
    """Return whether one of a call's frames is in a file of an optimizer, by its path."""
    return any(_IN_OPTIMIZER.match(frame.lstrip()) for frame in frames)


def _are_at_most_one(finding: Finding) -> bool:
    tensors = [place.leaf for place in finding.outputs if isinstance(place.leaf, TensorElement)]
    return bool(tensors) and all(tensor.max is not None and tensor.max <= 1 for tensor in tensors)
