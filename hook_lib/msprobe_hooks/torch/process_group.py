"""This process among others."""

from __future__ import annotations

import torch.distributed as dist


def process_rank() -> int | None:
    """Return this process's rank, None where no process group is initialised."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None
