"""The iterator of a check or a comparison: it judges when it is asked for a record, and says how far it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe import CheckedRecord, check_dump, compare_dumps
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.python_api.check_dump import Records
from pytest_msprobe.results.result import Breakdown, failed_without_result

EXAMPLES = Path(__file__).parents[2] / "examples"
DUMP = EXAMPLES / "check_a_dump" / "dump.json"


class Counting(CpuDevice):
    """Counts the calls that it makes."""

    name = "counting"

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return super().call(*args, **kwargs)


def test_showing_the_iterator_in_a_notebook_judges_nothing() -> None:
    device = Counting()
    records = check_dump(DUMP, device=device, only="Torch.mat*")
    assert records._repr_html_().startswith("<p>0 of 8 records judged; a loop judges the others")
    assert device.calls == 0
    next(records)
    assert device.calls > 0


def test_counts_are_those_of_what_a_loop_has_taken() -> None:
    records = check_dump(DUMP, device="cpu", only="softmax,Torch.mat*")
    taken = [next(records) for _ in range(5)]
    assert repr(records).startswith("5 of 12 records judged, 5 pass; a loop judges the others")
    taken += records
    assert records.counts == Counter(each.outcome for each in taken)
    assert records.total == len(taken)
    assert repr(records) == "12 of 12 records judged, 12 pass"


def test_a_comparison_knows_how_many_calls_there_are() -> None:
    records = compare_dumps(EXAMPLES / "compare_runs" / "target", EXAMPLES / "compare_runs" / "golden")
    total = records.total
    assert records.counts.total() == 0
    assert len(list(records)) == total == records.counts.total()


def test_what_a_loop_has_taken_is_not_kept() -> None:
    def judged() -> Any:
        yield CheckedRecord(
            Path("dump.json"), "Torch.mm.0.forward", "oom", failed_without_result("", Breakdown.OOM, "")
        )

    records: Records[CheckedRecord] = Records(judged(), 1)
    first = next(records)
    assert first not in vars(records).values()
    assert vars(records).keys() == {"counts", "total", "_records"}
    assert repr(records) == "1 of 1 record judged, 1 oom"


def test_a_record_in_a_notebook_is_one_line_in_which_nothing_is_markup() -> None:
    result = failed_without_result("x", Breakdown.RUN, "raised <b>\x1b[1m & 'more'\nsecond line")
    record = CheckedRecord(Path("dump.json"), "Torch.<script>.0.forward", "fail", result)
    expected = "<p>Torch.&lt;script&gt;.0.forward: fail, raised &lt;b&gt;\\x1b[1m &amp; &#x27;more&#x27;</p>"
    assert record._repr_html_() == expected


@pytest.mark.parametrize("device", [Counting(), "cpu"], ids=["an object", "a name"])
def test_a_device_is_given_by_name_or_as_an_object(device: Any) -> None:
    assert {each.outcome for each in check_dump(DUMP, device=device, only="Torch.mat*")} == {"pass"}
