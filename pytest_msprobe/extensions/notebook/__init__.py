"""Results of a check or a comparison as a table in a notebook, and as a frame of pandas.

``pytest_msprobe.table`` judges what ``check_dump`` or ``compare_dumps`` gives, and shows the worst of it.
A frame needs pandas.
It adds no option to pytest, has no command and writes no file.

Take it out by deleting this folder, tests/extensions/notebook and examples/notebook; records then come one by one only.

Importing its modules loads nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas

    from pytest_msprobe.python_api.check_dump import CheckedRecord

#: The module of each name that ``pytest_msprobe`` has from here: this one.
EXPORTS = {"Results": "", "table": ""}

_Record = TypeVar("_Record", bound="CheckedRecord")

# A choice: two screens of a notebook.
_MOST_ROWS = 50
_SHOWN = ("record", "outcome", "margin", "scaled_error", "cause", "reason")
_WORST_FIRST = ("fail", "warn", "pass", "skip")


def table(records: Iterable[_Record]) -> Results[_Record]:
    """Judge records and return all of them; a notebook shows the worst as a table.

    Args:
        records: What `check_dump` or `compare_dumps` returned, or a choice of its records.

    Returns:
        The records in their order. Those that a loop has taken from the iterator before are not among them, as the
        table says.

    Raises:
        DeviceError: A record has broken the device.
        UserError: The iterator ended before its last record, as it was interrupted before.
    """
    from pytest_msprobe.errors import UserError
    from pytest_msprobe.python_api.check_dump import Records

    if not isinstance(records, Records):
        return Results(records)
    results = Results(records, records.counts.total())
    if (judged := records.counts.total()) < records.total:
        remedy = "call check_dump or compare_dumps again"
        raise UserError(f"judging was interrupted after {judged} of {records.total} records", remedy=remedy)
    return results


class Results(tuple[_Record, ...]):
    """Judged records in a fixed order; a notebook shows the worst as a table.

    Attributes:
        earlier: How many records a loop had taken before, which are not here.
    """

    earlier: int

    def __new__(cls, records: Iterable[_Record], earlier: int = 0) -> Results[_Record]:
        """Make them of records."""
        results = super().__new__(cls, records)
        results.earlier = earlier
        return results

    def __repr__(self) -> str:
        from msprobe_hooks.messages import counted

        counts = Counter(record.outcome for record in self)
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        total = f"{counted(len(self), 'record')}: {outcomes}" if self else "no record"
        return f"{total}; {self.earlier} taken before are not kept" if self.earlier else total

    def to_pandas(self) -> pandas.DataFrame:
        """Return a frame with a row for each record.

        Its columns are ``record``, ``outcome``, ``decided_by``, ``reason``, ``output`` (the place of the deciding
        output) and ``dump``. Those of a check follow: ``margin`` (NaN where nothing was judged), ``at_most`` and
        ``seconds``; or those of a comparison: ``scaled_error`` (NaN where nothing differs or could be measured),
        ``cause``, ``golden``, ``module``, ``step`` and ``rank``. The last ones are the metrics of the deciding outputs.

        Raises:
            OptionError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            from pytest_msprobe.errors import OptionError

            raise OptionError("to_pandas() needs pandas", remedy="pip install pandas") from None
        return pandas.DataFrame([{**_columns(record), **record.result.verdict.metrics} for record in self])

    def _repr_html_(self) -> str:
        title = f"<p>{escape(repr(self))}</p>"
        if not self:
            return title
        rows = [_columns(record) for record in nsmallest(_MOST_ROWS, self, key=_badness)]
        shown = [name for name in _SHOWN if name in rows[0]]
        if len({record.dump for record in self}) > 1:
            shown.append("dump")
        lines = [_row("th", shown), *(_row("td", [_cell(row, name) for name in shown]) for row in rows)]
        more = len(self) - len(rows)
        left_out = f"<p>and {more} more, which passed or are less wrong; to_pandas() has all</p>" if more else ""
        return "\n".join([title, "<table>", *lines, "</table>", left_out])


def _badness(record: CheckedRecord) -> tuple[int, bool, float]:
    """Return what records are ordered by: how they ended, then whether a difference begins there, then margins.

    Where several differences begin, the first one in execution order leads.
    """
    verdict = record.result.verdict
    begins = getattr(getattr(record, "call", None), "cause", "") == "culprit"
    return _WORST_FIRST.index(verdict.outcome), not begins, 0.0 if begins else -verdict.margin


def _columns(record: CheckedRecord) -> dict[str, Any]:
    """Return the columns of a record's row, without metrics; texts are one line each."""
    from pytest_msprobe.modes.compare.rows import SCALED_ERROR
    from pytest_msprobe.python_api.compare_dumps import ComparedRecord
    from pytest_msprobe.reports.text import one_line

    result = record.result
    verdict = result.verdict
    columns: dict[str, Any] = {
        "record": record.name,
        "outcome": record.outcome,
        "decided_by": result.decided_by,
        "reason": "" if verdict.outcome == "pass" and not verdict.reason else result.reason,
        "output": result.deciding.path if result.deciding else "",
        "dump": str(record.dump),
    }
    if isinstance(record, ComparedRecord):
        call = record.call
        columns |= {"scaled_error": verdict.metrics.get(SCALED_ERROR, math.nan)}
        columns |= {name: getattr(call, name, None) for name in ("cause", "golden", "module", "step", "rank")}
    else:
        margin = math.nan if verdict.outcome == "skip" else verdict.margin
        columns |= {"margin": margin, "at_most": verdict.at_most, "seconds": result.seconds}
    return {name: one_line(value) if isinstance(value, str) else value for name, value in columns.items()}


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return "" if math.isnan(value) else f"{'≤ ' if row.get('at_most') else ''}{value:.3g}"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
