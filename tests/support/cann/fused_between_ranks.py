"""Operators that compute and communicate, called by two ranks on cards, compared with what each rank's card has then.

Run as a program by each rank, as `checked_ranks.main` describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map

from tests.support.cann.checked_ranks import Pair, main, on_card
from tests.support.cann.examples.fused_communication import GROUP, RANKS
from tests.support.cann.operators.fused_communication import results_of


def _call(name: str, rank: int) -> Iterator[Pair]:
    import torch_npu  # type: ignore[import-not-found,unused-ignore]

    calls = RANKS[name](torch.Generator().manual_seed(0))
    operator = getattr(torch_npu, name.partition("-")[0])
    args, kwargs = tree_map(_on_card, (calls[rank].args, calls[rank].kwargs))
    results = operator(*args, **kwargs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    for got, expected in zip(results, results_of(name, calls)[rank], strict=False):
        if expected is not None:
            yield got, expected


def _on_card(argument: Any) -> Any:
    """Return what a rank passes: tensors on its card, and the name that HCCL gives the group of all ranks."""
    if isinstance(argument, str) and argument == GROUP:
        backend = dist.group.WORLD._get_backend(torch.device("npu"))  # type: ignore[union-attr]
        return backend.get_hccl_comm_name(dist.get_rank())  # type: ignore[attr-defined,unused-ignore]
    return on_card(argument) if isinstance(argument, torch.Tensor) else argument


if __name__ == "__main__":
    main({name: lambda rank, count, name=name: _call(name, rank) for name in RANKS})  # type: ignore[misc]
