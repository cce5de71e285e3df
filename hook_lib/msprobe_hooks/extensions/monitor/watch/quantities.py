"""The names of what a training can be watched for; knows no framework."""

from __future__ import annotations

from typing import Final

#: msprobe's statistics, and two beyond: the root mean square and the share of subnormals.
STATISTICS: Final = ("norm", "min", "max", "zeros", "nans", "id", "mean", "rms", "subnormals")

#: What ``watch(..., what=[...])`` can be given.
WHAT: Final = (
    "activations",
    "activation_gradients",
    "gradients",
    "micro_batch_gradients",
    "moments",
    "parameters",
    "updates",
    "direction",
    "collectives",
    "structure",
    "stacks",
)

#: Those of them that are measured of parameters.
OF_PARAMETERS: Final = frozenset(
    {"gradients", "micro_batch_gradients", "moments", "parameters", "updates", "direction"}
)

#: Why MindSpore's collectives cannot be among them.
NO_COLLECTIVES: Final = "MindSpore's communication functions are not monitored"
