"""Forked children: what a recording is to them."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Protocol


class Abandonable(Protocol):
    """Resource that a forked child must let go of."""

    def abandon(self) -> None:
        """Abandon everything; what is open belongs to the parent."""


_live: weakref.WeakSet[Abandonable] = weakref.WeakSet()


def abandon_in_children(one: Abandonable) -> None:
    """Abandon something in every process that is forked off while it exists."""
    _live.add(one)


def _abandon_all() -> None:
    for one in list(_live):
        # One that fails must not keep the others from letting go.
        with suppress(Exception):
            one.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
