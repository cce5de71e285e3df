"""Failed records by API, dtype and direction: sixty failures of one API are one line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.reports.text import aligned, clipped

_SHOWN = 12
_NAME_LENGTH = 60


@dataclass
class _Api:
    judged: int = 0
    failed: int = 0
    dtypes: Counter[str] = field(default_factory=Counter)
    directions: Counter[str] = field(default_factory=Counter)


class FailedApis:
    """Counts the results of a run's records by API."""

    def __init__(self, heading: str = "failed, by API") -> None:
        self._heading = heading
        self._apis: defaultdict[str, _Api] = defaultdict(_Api)

    def add(self, plain: dict[str, Any]) -> None:
        """Count a result that `to_plain` took apart."""
        name, direction = api_and_direction(plain["record"])
        outcome = plain["verdict"]["outcome"]
        if outcome == "skip":
            return
        api = self._apis[name]
        api.judged += 1
        if outcome == "fail":
            api.failed += 1
            api.directions[direction] += 1
            wrong = (output for output in plain["outputs"] if output["verdict"]["outcome"] == "fail")
            api.dtypes.update({output["target_dtype"].removeprefix("torch.") for output in wrong} - {""})

    def lines(self) -> Iterator[str]:
        """Yield a table of the APIs that failed, the most failures first; nothing where one record did."""
        failed = sorted((-api.failed, name) for name, api in self._apis.items() if api.failed)
        if -sum(count for count, _ in failed) < 2:
            return
        yield f"{self._heading}:"
        rows = [self._row(name) for _, name in failed[:_SHOWN]]
        yield from (f"  {line}" for line in aligned(rows, range(1)))
        if len(failed) > _SHOWN:
            yield f"  and {len(failed) - _SHOWN} more"

    def _row(self, name: str) -> list[str]:
        api = self._apis[name]
        counts = _listed(api.dtypes), _listed(api.directions)
        return [f"{api.failed} of {api.judged}", clipped(name, _NAME_LENGTH), *counts]


def _listed(counts: Counter[str]) -> str:
    """Return what was counted, with counts where there are several kinds."""
    if len(counts) < 2:
        return next(iter(counts), "")
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def api_and_direction(record: str) -> tuple[str, str]:
    """Return what a record calls and its direction; another record's own name, and no direction."""
    try:
        name = parse_api_name(record)
    except ValueError:
        return record, ""
    return name.qualified_api, name.direction
