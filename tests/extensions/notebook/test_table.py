"""Results as a table and as a frame."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards import Verdict
from pytest_msprobe import CheckedRecord, Records, Results, check_dump, compare_dumps, table
from pytest_msprobe.errors import OptionError, UserError
from pytest_msprobe.results.result import Breakdown, DirectionResult, OutputResult, failed_without_result
from tests.support.requirements import require

EXAMPLES = Path(__file__).parents[3] / "examples"
DUMP = EXAMPLES / "check_a_dump" / "dump.json"
RUNS = EXAMPLES / "compare_runs"


def judged(name: str, outcome: str, margin: float = 0.0, reason: str = "", dump: str = "dump.json") -> CheckedRecord:
    verdict = Verdict(outcome, "ulp", reason, {"max_ulp_error": margin}, margin=margin)  # type: ignore[arg-type]
    result = DirectionResult(name, verdict, (OutputResult("output.0", verdict),), seconds=0.5)
    return CheckedRecord(Path(dump), name, outcome, result)


def cells(results: Results[CheckedRecord]) -> list[list[str]]:
    """Return the texts of the table that a notebook shows, after the row of names."""
    tree = ElementTree.fromstring(f"<div>{results._repr_html_()}</div>")
    return [[cell.text or "" for cell in row] for row in tree.iter("tr")]


def paragraphs(results: Results[CheckedRecord]) -> list[str]:
    tree = ElementTree.fromstring(f"<div>{results._repr_html_()}</div>")
    return [paragraph.text or "" for paragraph in tree.iter("p")]


def test_the_table_judges_all_records_and_keeps_their_order() -> None:
    names = [each.name for each in check_dump(DUMP, device="cpu", only="softmax,Torch.mat*")]
    results = table(check_dump(DUMP, device="cpu", only="softmax,Torch.mat*"))
    assert [each.name for each in results] == names
    assert paragraphs(results) == ["12 records: 12 pass"]


def test_records_that_a_loop_took_before_are_said_to_be_missing() -> None:
    records = check_dump(DUMP, device="cpu", only="Torch.mat*")
    next(records)
    results = table(records)
    assert (len(results), results.earlier) == (7, 1)
    assert paragraphs(results) == ["7 records: 7 pass; 1 taken before are not kept"]
    assert repr(table(records)) == "no record; 8 taken before are not kept"


def test_an_iterator_that_was_interrupted_is_no_complete_table() -> None:
    def interrupted() -> Iterator[CheckedRecord]:
        yield judged("a", "pass")
        raise KeyboardInterrupt

    records = Records(interrupted(), 3)
    with pytest.raises(KeyboardInterrupt):
        table(records)
    with pytest.raises(UserError, match=r"^judging was interrupted after 1 of 3 records; call check_dump"):
        table(records)


def test_the_worst_come_first() -> None:
    results = table(
        [
            judged("a", "skip"),
            judged("b", "pass", 0.9),
            judged("c", "fail", 2.0),
            judged("d", "warn", 5.0),
            judged("e", "pass", 0.1),
            judged("f", "fail", math.inf),
        ]
    )
    assert [row[0] for row in cells(results)] == ["record", "f", "c", "d", "b", "e", "a"]
    assert paragraphs(results) == ["6 records: 2 pass, 2 fail, 1 skip, 1 warn"]


def test_a_record_that_did_not_end_is_among_the_failures() -> None:
    crashed = CheckedRecord(Path("d"), "x", "oom", failed_without_result("x", Breakdown.OOM, "memory ran out"))
    assert [row[:2] for row in cells(table([judged("a", "fail", 3.0), crashed]))][1] == ["x", "oom"]


def test_the_table_says_how_many_rows_it_leaves_out() -> None:
    results = table([judged(f"r{place}", "pass", place / 100) for place in range(53)])
    rows = cells(results)[1:]
    assert len(rows) == 50
    assert rows[0][0] == "r52"
    assert paragraphs(results)[-1] == "and 3 more, which passed or are less wrong; to_pandas() has all"


def test_of_several_dumps_the_table_names_each() -> None:
    rows = cells(table([judged("a", "pass", dump="one"), judged("a", "fail", 2.0, dump="two")]))
    assert rows[0][-1] == "dump"
    assert [row[-1] for row in rows[1:]] == ["two", "one"]


def test_no_record_is_a_sentence_without_a_table() -> None:
    assert table([])._repr_html_() == "<p>no record</p>"


def test_a_skip_has_no_margin_and_a_bound_is_marked() -> None:
    verdict = Verdict("pass", "ulp", margin=0.25, at_most=True)
    bound = CheckedRecord(Path("d"), "b", "pass", DirectionResult("b", verdict))
    assert [row[2] for row in cells(table([judged("a", "skip"), bound]))[1:]] == ["≤ 0.25", ""]


# XML, by which the test reads the table, takes no control characters, which the table spells out.
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4))
def test_any_name_and_reason_is_shown_as_text(texts: list[tuple[str, str]]) -> None:
    results = table([judged(name, "fail", 2.0, reason) for name, reason in texts])
    rows = cells(results)[1:]
    assert [len(row) for row in rows] == [4] * len(texts)
    for (name, _), row in zip(texts, rows, strict=True):
        if name.isprintable() and not name.startswith("::"):
            assert row[0] == name
    assert all(cell.replace("\t", "").isprintable() for row in rows for cell in row)


def test_where_several_differences_begin_the_first_call_leads() -> None:
    results = table(compare_dumps(RUNS / "target", RUNS / "golden"))
    culprits = [each.name for each in results if each.call is not None and each.call.cause == "culprit"]
    rows = cells(results)
    assert rows[0] == ["record", "outcome", "scaled_error", "cause", "reason"]
    assert len(culprits) > 1
    assert [row[0] for row in rows[1 : 1 + len(culprits)]] == culprits


def test_a_frame_has_a_row_for_each_record_with_the_metrics_that_decided() -> None:
    require(find_spec("pandas"), "pandas")
    frame = table([judged("a", "fail", 2.5, "too far\nhint"), judged("b", "skip")]).to_pandas()
    first = frame.iloc[0].to_dict()
    assert first == {
        "record": "a", "outcome": "fail", "decided_by": "ulp", "reason": "output.0: too far", "output": "output.0",
        "dump": "dump.json", "margin": 2.5, "at_most": False, "seconds": 0.5, "max_ulp_error": 2.5,
    }  # fmt: skip
    assert math.isnan(frame.margin[1])


def test_a_frame_of_a_comparison_has_the_cause_and_the_partner_of_each_call() -> None:
    require(find_spec("pandas"), "pandas")
    results = table(compare_dumps(RUNS / "target", RUNS / "golden"))
    frame = results.to_pandas()
    first = frame[frame.cause == "culprit"].iloc[0]
    assert (first.record, first.golden) == ("Functional.linear.1.forward",) * 2
    assert f"scaled error {first.scaled_error:.2e} exceeds" in first.reason
    assert frame.outcome.value_counts().to_dict() == {"pass": 87, "fail": 64, "warn": 25}
    assert "margin" not in frame


def test_without_pandas_a_frame_is_one_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match=r"^to_pandas\(\) needs pandas; pip install pandas$"):
        table([judged("a", "pass")]).to_pandas()
