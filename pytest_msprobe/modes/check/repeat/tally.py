"""What differs from itself, as the summary tells it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.results.repeats import Repeats, repeats_of


class RepeatsTally:
    """Counts, for the summary, the records that were repeated, and lists the APIs that differ from themselves."""

    def __init__(self) -> None:
        self._times = 0
        self._repeated = 0
        self._left_out: Counter[str] = Counter()
        self._unstable: defaultdict[tuple[str, bool], list[Repeats]] = defaultdict(list)

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        repeats = repeats_of(extras)
        if repeats is None:
            return
        self._times = repeats.times
        if repeats.left_out:
            self._left_out[repeats.left_out] += 1
            return
        self._repeated += 1
        if repeats.unstable:
            self._unstable[repeats.api, repeats.is_known].append(repeats)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._times:
            return []
        differ = sum(map(len, self._unstable.values()))
        lines = [f"{self._repeated} run {self._times} times, {differ} of them nondeterministic"]
        lines += [f"  {_line(api, is_known, found)}" for (api, is_known), found in sorted(self._unstable.items())]
        return lines + [f"  {count} not repeated: {reason}" for reason, count in self._left_out.most_common()]


def _line(api: str, is_known: bool, found: list[Repeats]) -> str:
    outputs = [output for repeats in found for output in repeats.unstable]
    share, largest = max(output.share for output in outputs), max(output.largest for output in outputs)
    known = ", known to the policy" if is_known else ""
    return f"{len(found)} {api}: up to {100 * share:.3g} % of the elements, by at most {largest:.6g}{known}"
