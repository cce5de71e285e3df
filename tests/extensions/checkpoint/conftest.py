from __future__ import annotations

from tests.support.fixtures.recordings import records

__all__ = ["records"]
