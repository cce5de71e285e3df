"""How long the search goes on: a moment in `make test`, as long as one likes in `make fuzz`."""

from __future__ import annotations

import os
from collections import Counter

from hypothesis import HealthCheck, settings

_FACTOR = int(os.environ.get("MSPROBE_FUZZ", "0"))

#: How many mutated records a dump gets: those of the search share a run of pytest.
RECORDS_PER_DUMP = 200 if _FACTOR else 40

#: How many mutated files one example of a reader tries.
FILES_PER_EXAMPLE = 100 if _FACTOR else 5

#: The inputs that were tried, by kind.
tried: Counter[str] = Counter()


def budget(examples: int) -> settings:
    """Return how many examples a test tries: the same ones each time, or ``MSPROBE_FUZZ`` times as many by the seed."""
    return settings(
        max_examples=examples * max(1, _FACTOR),
        derandomize=_FACTOR == 0,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
