"""What process groups say of this rank: which parameters another one tells of, and its stage of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

from msprobe_hooks.instruments.series.anomalies import Pipeline


def is_left_out_in(tensor_parallel: Any, data_parallel: Any) -> Callable[[Tensor], bool]:
    """Return what tells whether a parameter's gradients are another rank's to tell.

    Of a data-parallel group that is rank 0; of a tensor-parallel group it is for parameters that are not split, which
    have no ``tensor_model_parallel``. A group that is None leaves nothing out.
    """
    is_replica = data_parallel is not None and dist.get_rank(data_parallel) != 0
    is_behind = tensor_parallel is not None and dist.get_rank(tensor_parallel) != 0
    return lambda parameter: is_replica or (is_behind and not getattr(parameter, "tensor_model_parallel", False))


def pipeline_in(group: Any) -> Pipeline | None:
    """Return this rank's stage in a group of pipeline stages; None without such a group."""
    if group is None:
        return None
    ranks = dist.get_process_group_ranks(group)
    return Pipeline(ranks.index(dist.get_rank()), ranks)
