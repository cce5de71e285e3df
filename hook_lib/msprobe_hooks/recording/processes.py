"""Which process of many this is."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Protocol


class Abandonable(Protocol):
    """Something that a forked child must let go of."""

    def abandon(self) -> None:
        """Let go; what is open belongs to the parent."""


_live: weakref.WeakSet[Abandonable] = weakref.WeakSet()


def abandon_in_children(one: Abandonable) -> None:
    """Have something abandoned in every process that is forked off while it exists."""
    _live.add(one)


def _abandon_all() -> None:
    for one in list(_live):
        one.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def process_rank() -> int | None:
    """Return this process's rank, None where no process group is initialised."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    rank: int = dist.get_rank()
    return rank
