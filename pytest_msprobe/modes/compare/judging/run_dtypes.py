"""Arguments that name the dtype which each run is in: they differ since the runs do, and are no settings."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import is_forward, plain_dtype
from msprobe_hooks.dump.values import read_values
from msprobe_hooks.errors import DumpError
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


class RunDtypes:
    """The dtypes that two runs are in, read from their records when a dtype differs for the first time."""

    def __init__(self, target: Dump, golden: Dump) -> None:
        self._sides = target, golden

    def judged(self, rows: list[Row]) -> list[Row]:
        """Return the measured rows, with those left out that differ as the runs do."""
        return [self._left_out(row) if self._is_of_runs(row) else row for row in rows]

    def _is_of_runs(self, row: Row) -> bool:
        if row.target is None or row.golden is None or not row.metrics.get(SCALED_ERROR):
            return False
        values = row.target, row.golden
        return all(value.type.endswith(".dtype") for value in values) and self._dtypes == tuple(
            plain_dtype(value.text) for value in values
        )

    def _left_out(self, row: Row) -> Row:
        reason = "not compared: the runs are in {} and {}".format(*self._dtypes)
        return replace(row, outcome="pass", metrics={}, unmeasured="left out", messages=(reason,))

    @cached_property
    def _dtypes(self) -> tuple[str, str]:
        target, golden = map(_only_dtype, self._sides)
        return target, golden


def _only_dtype(dump: Dump) -> str:
    """Return the dtype of all tensors that require a gradient and that calls were given, empty where it varies."""
    dtypes: set[str] = set()
    for record in filter(is_forward, dump.records):
        # What cannot be read is reported by its own item.
        with suppress(DumpError):
            dtypes.update(
                plain_dtype(placed.value.dtype)
                for placed in read_values(dump, record)
                if placed.group in ("input", "parameters") and placed.value.requires_grad
            )
        if len(dtypes) > 1:
            return ""
    return next(iter(dtypes), "")
