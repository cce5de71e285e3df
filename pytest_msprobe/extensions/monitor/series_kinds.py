"""What a series is of: an activation, a gradient, a parameter, whichever way the source of the run spells its task.

A monitored run names tasks ``actv``, ``actv_grad``, ``grad_reduced``, ``param_origin`` and so on. A recording has
``forward``, ``recompute``, ``backward`` and ``parameters_grad``; in it a parameter is one of the forward tensors of its
module, ``forward/Module.fc.Linear.parameters.weight``, and its gradient is ``parameters_grad/Module.fc.Linear.weight``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from msprobe_hooks.extensions.monitor.series.tables import Watched


class Kind(Enum):
    """What a series is of."""

    ACTIVATION = "activation"
    ACTIVATION_GRADIENT = "gradient of an activation"
    PARAMETER_GRADIENT = "gradient of a parameter"
    PARAMETER = "parameter"
    UPDATED_PARAMETER = "parameter after the step"
    MOMENT = "state of the optimizer"
    RATIO = "what an optimizer divides"
    WITHOUT_GRADIENT = "call that no gradient came back to"
    COLLECTIVE = "tensor of a collective"
    OTHER = "other"


GRADIENTS = frozenset({Kind.ACTIVATION_GRADIENT, Kind.PARAMETER_GRADIENT})
PARAMETERS = frozenset({Kind.PARAMETER, Kind.UPDATED_PARAMETER})
#: What may be computed from the gradients of the same step, as by the optimizer.
FROM_GRADIENTS = frozenset({Kind.UPDATED_PARAMETER, Kind.MOMENT, Kind.RATIO, Kind.WITHOUT_GRADIENT})

_KINDS = {
    "actv": Kind.ACTIVATION,
    "forward": Kind.ACTIVATION,
    "recompute": Kind.ACTIVATION,
    "actv_grad": Kind.ACTIVATION_GRADIENT,
    "backward": Kind.ACTIVATION_GRADIENT,
    "grad_unreduced": Kind.PARAMETER_GRADIENT,
    "grad_reduced": Kind.PARAMETER_GRADIENT,
    "parameters_grad": Kind.PARAMETER_GRADIENT,
    "param_origin": Kind.PARAMETER,
    "param": Kind.PARAMETER,
    "param_updated": Kind.UPDATED_PARAMETER,
    "exp_avg": Kind.MOMENT,
    "exp_avg_sq": Kind.MOMENT,
    "adam_update": Kind.RATIO,
    "adam_ratio": Kind.RATIO,
}
_OF_COLLECTIVE = re.compile(r"\w+/(pre|post)_\d+")
_RECORDED_PARAMETER = re.compile(r"((?:Module|Cell)\..+)\.parameters\.([^.]+)")
_RECORDED_CALL = re.compile(r"((?!Module\.|Cell\.).+\.[0-9]+)\.(?:input|output)\b.*")


def kind_of(series: SeriesKey | Watched) -> Kind:
    """Return what a series is of, as far as its task and name show."""
    kind = _KINDS.get(series.task, Kind.OTHER)
    if kind is Kind.OTHER and series.task == "other" and _OF_COLLECTIVE.fullmatch(series.name):
        return Kind.COLLECTIVE
    if kind is Kind.ACTIVATION and ".parameters." in series.name and _RECORDED_PARAMETER.fullmatch(series.name):
        return Kind.PARAMETER
    return kind


def parameter_name(series: SeriesKey | Watched) -> str:
    """Return what a parameter and its gradient are both called."""
    found = _RECORDED_PARAMETER.fullmatch(series.name) if series.task in ("forward", "recompute") else None
    return f"{found[1]}.{found[2]}" if found else series.name


def is_input(series: SeriesKey | Watched) -> bool:
    """Return whether an activation is what its module or call is given."""
    return series.name.endswith(".input") or ".input." in series.name


class Kinds:
    """The kinds of the tensors of one run, of which a recording's depend on each other.

    A recorded call of an API that no gradient came back to may be one of the optimizer's, which has no name of its own.
    """

    def __init__(self, tensors: Iterable[Watched]) -> None:
        self._differentiated = {_call(tensor) for tensor in tensors if tensor.task == "backward"} - {None}

    def of(self, tensor: Watched) -> Kind:
        """Return what a tensor is."""
        kind = kind_of(tensor)
        if kind is Kind.ACTIVATION and self._differentiated and tensor.task != "actv":
            call = _call(tensor)
            return kind if call is None or call in self._differentiated else Kind.WITHOUT_GRADIENT
        return kind


def _call(recorded: Watched) -> str | None:
    """Return the call of an API that a recorded tensor is of, as ``Functional.linear.3``; None for a module's."""
    found = _RECORDED_CALL.fullmatch(recorded.name)
    return found[1] if found else None
