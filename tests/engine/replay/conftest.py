from __future__ import annotations

from tests.support.fixtures.replays import check, default_policy, device_that, recorder

__all__ = ["check", "default_policy", "device_that", "recorder"]
