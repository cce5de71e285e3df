from __future__ import annotations

from tests.support.fixtures.cases import limits, replay, save, setup

__all__ = ["limits", "replay", "save", "setup"]
