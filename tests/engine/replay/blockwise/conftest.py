"""Calls are cut into small blocks."""

from __future__ import annotations

from tests.support.replays.small_blocks import small_blocks

__all__ = ["small_blocks"]
