from __future__ import annotations

from tests.support.fixtures.replays import default_policy, recorded

__all__ = ["default_policy", "recorded"]
