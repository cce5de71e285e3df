from __future__ import annotations

from tests.support.fixtures.recordings import records
from tests.support.fixtures.replays import default_policy, recorder

__all__ = ["default_policy", "recorder", "records"]
