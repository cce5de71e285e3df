from __future__ import annotations

from tests.support.fixtures.replays import recorded

__all__ = ["recorded"]
