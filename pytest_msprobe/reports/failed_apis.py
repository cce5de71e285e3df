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
    """Counts the results of a run's records by API, or of what else a run judges by name."""

    def __init__(self, kind: str = "API records") -> None:
        self._kind = kind
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
        is_by_api = self._kind.endswith("records")
        yield "failed, by API:" if is_by_api else f"failed {self._kind}:"
        rows = [self._row(name) for _, name in failed[:_SHOWN]]
        if not is_by_api and all(api.judged == 1 for api in self._apis.values()):
            rows = [row[1:] for row in rows]
        yield from (f"  {line}" for line in aligned(rows, range(1 if is_by_api else 0)))
        if len(failed) > _SHOWN:
            yield f"  and {len(failed) - _SHOWN} more{' APIs' if is_by_api else ''}"

    def _row(self, name: str) -> list[str]:
        api = self._apis[name]
        return [f"{api.failed} of {api.judged}", _clipped_name(name), _joined(api.dtypes), _joined(api.directions)]


def _clipped_name(name: str) -> str:
    """Return a name that fits; of a check in a test its end, where its API is."""
    if "::" not in name or len(name) <= _NAME_LENGTH:
        return clipped(name, _NAME_LENGTH)
    return f"... {name[4 - _NAME_LENGTH :]}"


def _joined(counts: Counter[str]) -> str:
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
