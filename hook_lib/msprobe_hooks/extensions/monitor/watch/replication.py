"""Replicated parameters, which another rank of a process group reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def is_replicated_elsewhere(
    rank_in: Callable[[Any], int], tensor_parallel: Any, data_parallel: Any
) -> Callable[[Any], bool]:
    """Return whether another rank reports a parameter's gradients, as a function; ``rank_in`` is the rank in a group.

    Of a data-parallel group that is rank 0; of a tensor-parallel group it is for parameters that are not split, which
    have no ``tensor_model_parallel``. A group that is None leaves nothing out.
    """
    is_replica = data_parallel is not None and rank_in(data_parallel) != 0
    is_behind = tensor_parallel is not None and rank_in(tensor_parallel) != 0
    return lambda parameter: is_replica or (is_behind and not getattr(parameter, "tensor_model_parallel", False))
