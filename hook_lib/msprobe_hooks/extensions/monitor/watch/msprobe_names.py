"""Short names, as msprobe makes them: what follows ``layers.`` or ``embeddings.``, or begins with ``final``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

# In this order; the first that is found decides.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (r"layers?\.(.*)", r"embeddings?\.(.*)", r"(final.*)", r"(output.*)", r"(norm.*)")
)


def msprobe_short_names(names: Sequence[str]) -> list[str]:
    """Return a short name for each; those that would be called alike keep their full ones."""
    short = [_short(name) for name in names]
    count = Counter(short)
    return [one if count[one] == 1 else full for one, full in zip(short, names, strict=True)]


def _short(name: str) -> str:
    short = next((match for pattern in _PATTERNS if (match := pattern.search(name))), None)
    return short[1] if short else name
