from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_standards import Verdict
from pytest_msprobe.modes.check.baselines.details_table import read_details
from pytest_msprobe.reports.csv import Tables, TablesByDump
from pytest_msprobe.results.result import DirectionResult
from tests.support.hosts.disks import files_of_at_most

Write = Callable[..., Path]
Json = dict[str, Any]

RESULT_HEADER = ["API name", "Forward Test Success", "Backward Test Success", "Message"]

# msprobe 1.2.2's, in its order.
DETAILS_HEADER = [
    "API Name",
    "Bench Dtype",
    "DEVICE Dtype",
    "Shape",
    "余弦相似度",
    "最大绝对误差",
    "双百指标",
    "双千指标",
    "双万指标",
    "二进制一致错误率",
    "误差均衡性",
    "均方根误差",
    "小值域错误占比",
    "相对误差最大值",
    "相对误差平均值",
    "inf/nan错误率",
    "相对误差错误率",
    "绝对误差错误率",
    "ULP误差最大值",
    "ULP误差平均值",
    "ULP误差大于阈值占比",
    "Status",
    "Message",
]


@pytest.fixture
def tables(pytester: pytest.Pytester) -> Callable[[], tuple[list[list[str]], list[list[str]]]]:
    """Read the two files that a run wrote to ``out``: results and details."""

    def read() -> tuple[list[list[str]], list[list[str]]]:
        found = []
        for kind in ("result", "details"):
            (path,) = (pytester.path / "out").glob(f"accuracy_checking_{kind}_*.csv")
            assert re.fullmatch(rf"accuracy_checking_{kind}_\d{{14}}\.csv", path.name)
            assert path.read_bytes().startswith(b"\xef\xbb\xbf")
            with path.open(encoding="utf-8-sig", newline="") as file:
                found.append(list(csv.reader(file)))
        return found[0], found[1]

    return read


@pytest.fixture
def dump(write_dump: Write, records: Json, element: Any, forward: Any, make_device: Callable[[str], None]) -> None:
    """Write a dump of which index_select is made wrong, one element of abs by 0.5, and one API is unknown."""
    positive = element(10, 10, low=1.0, high=2.0)
    write_dump(
        {
            **records,
            "Torch.abs.0.forward": forward(positive),
            "Torch.no_such_api.0.forward": forward(positive),
        }
    )
    make_device(
        """
if record == "Torch.abs.0.forward":
    result[3, 4] += 0.5
if record == "Torch.index_select.0.forward":
    result = result + 1
"""
    )


def run(check: Any, *arguments: str, apart: bool = False) -> Any:
    return check("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-csv=out", *arguments, apart=apart)


def test_the_result_table_has_one_row_per_call(dump: None, check: Any, tables: Any) -> None:
    run(check)
    header, *rows = tables()[0]
    assert header == RESULT_HEADER
    skip = "this torch has no such API: Torch.no_such_api"
    assert rows == [
        ["Functional.softmax.0", "pass", "pass"],
        ["Functional.linear.0", "pass", "pass"],
        ["Torch.index_select.0", "error", " "],
        ["Torch.abs.0", "error", " "],
        ["Torch.no_such_api.0", "SKIP", " ", skip],
    ]


def test_the_details_table_has_msprobes_columns_and_a_row_per_output(dump: None, check: Any, tables: Any) -> None:
    run(check)
    header, *rows = tables()[1]
    assert header == DETAILS_HEADER
    assert {len(row) for row in rows} == {len(DETAILS_HEADER)}
    assert [row[0] for row in rows] == [
        "Functional.softmax.0.forward.output.0",
        "Functional.softmax.0.backward.output.0",
        "Functional.linear.0.forward.output.0",
        "Functional.linear.0.backward.output.0",
        "Functional.linear.0.backward.output.1",
        "Torch.index_select.0.forward.output.0",
        "Torch.abs.0.forward.output.0",
        "Torch.no_such_api.0.forward",
    ]
    linear = dict(zip(header, rows[2], strict=True))
    assert (linear["Bench Dtype"], linear["DEVICE Dtype"]) == ("torch.float32", "torch.bfloat16")
    assert (linear["Shape"], linear["Status"]) == ("(4, 8)", "pass")
    skipped = rows[-1]
    assert set(skipped[1:-2]) == {" "}
    assert skipped[-2:] == ["SKIP", "this torch has no such API: Torch.no_such_api"]


def test_the_metrics_are_those_of_the_output(dump: None, check: Any, tables: Any) -> None:
    run(check)
    header, *rows = tables()[1]
    wrong = dict(zip(header, next(row for row in rows if row[0] == "Torch.abs.0.forward.output.0"), strict=True))
    assert wrong["Status"] == "error"
    # One of 100 elements, all between 1 and 2, is off by 0.5.
    expected = {
        "最大绝对误差": 0.5,
        "双百指标": 0.99,
        "双千指标": 0.99,
        "双万指标": 0.99,
        "二进制一致错误率": 0.01,
        "均方根误差": 0.05,
        "小值域错误占比": 0.0,
        "inf/nan错误率": 0.0,
        "相对误差错误率": 0.01,
        "绝对误差错误率": 0.0,
    }
    assert {name: float(wrong[name]) for name in expected} == pytest.approx(expected, rel=1e-6)
    assert 0.25 <= float(wrong["相对误差最大值"]) <= 0.5
    assert 0.99 < float(wrong["余弦相似度"]) < 1
    assert float(wrong["ULP误差最大值"]) == pytest.approx(0.5 * 2**23)


@pytest.mark.nightly
@pytest.mark.slow
def test_two_workers_write_the_rows_of_one(dump: None, check: Any, tables: Any) -> None:
    run(check, "-n2", apart=True)
    results, details = tables()
    assert {row[0]: row[1] for row in results[1:]} == {
        "Functional.softmax.0": "pass",
        "Functional.linear.0": "pass",
        "Torch.index_select.0": "error",
        "Torch.abs.0": "error",
        "Torch.no_such_api.0": "SKIP",
    }
    assert len(details) == 1 + 8


def test_a_warning_is_spelled_as_msprobe_spells_it(
    always_warns: list[str], write_dump: Write, records: Json, check: Any, tables: Any
) -> None:
    write_dump({"Functional.softmax.0.forward": records["Functional.softmax.0.forward"]})
    check("--msprobe-dump=dump.json", "--msprobe-csv=out", *always_warns, "-Wdefault")
    results, details = tables()
    assert results[1] == ["Functional.softmax.0", "Warning", " "]
    assert details[1][-2:] == ["Warning", "worth a look"]


def test_the_folder_is_made_and_named_at_the_end(dump: None, pytester: pytest.Pytester, check: Any) -> None:
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-csv=deep/er")
    checked.result.stdout.fnmatch_lines(["msprobe tables: *deep/er/accuracy_checking_result_*.csv and *details_*.csv"])
    assert len(list((pytester.path / "deep" / "er").iterdir())) == 2


def test_a_run_of_many_ranks_keeps_one_file_open_at_a_time(tmp_path: Path, judged: Any) -> None:
    dumps = [tmp_path / f"rank{rank}" / "dump.json" for rank in range(20)]
    opened = Path("/proc/self/fd")
    before = len([*opened.iterdir()])
    tables = TablesByDump(tmp_path / "out", dict.fromkeys(dumps, "pytorch"))
    for dump in dumps:
        tables.add(dump, judged("Torch.add.0.forward", "pass"))
    tables.add(dumps[0], judged("Torch.mul.0.forward", "pass"))
    assert len([*opened.iterdir()]) == before + 1
    written = tables.close()
    assert len(written) == 20
    assert [row.record for row in read_details(written[0].details)] == ["Torch.add.0.forward", "Torch.mul.0.forward"]


@pytest.fixture
def tables_of_two_ranks(
    write_dump: Write, element: Any, forward: Any, pytester: pytest.Pytester, check: Any
) -> list[Path]:
    """Check one step of two ranks and return their details tables."""
    for rank in (0, 1):
        write_dump({"Torch.exp.0.forward": forward(element(4, 8))}, f"run/step3/rank{rank}")
    words = "--msprobe-dump=run", "--msprobe-device=cpu", "--msprobe-policy=msprobe-26", "--msprobe-csv=out"
    assert check(*words).exit_code == 0
    return sorted((pytester.path / "out").rglob("accuracy_checking_details_*.csv"))


def test_each_rank_has_tables_of_its_own(tables_of_two_ranks: list[Path], pytester: pytest.Pytester) -> None:
    assert [path.parent for path in tables_of_two_ranks] == [pytester.path / "out" / f"rank{rank}" for rank in (0, 1)]
    names = [[row.record for row in read_details(path)] for path in tables_of_two_ranks]
    assert names[0] == names[1]


def test_the_table_of_one_rank_is_the_baseline_of_its_dump_and_of_no_other(
    tables_of_two_ranks: list[Path], check: Any
) -> None:
    words = "--msprobe-device=cpu", "--msprobe-policy=msprobe-26", f"--msprobe-baseline={tables_of_two_ranks[0]}"
    assert check("--msprobe-dump=run/step3/rank0", *words).exit_code == 0
    both = check("--msprobe-dump=run", *words)
    assert "is a table of one dump, and this run has 2" in both.errors


def test_dumps_of_whatever_name_and_journals_of_whatever_place_keep_their_tables_apart_and_inside(
    tmp_path: Path, judged: Any
) -> None:
    dumps = [Path("/d/x/dump.json"), Path("/d/x.json"), Path("/d/../../elsewhere/dump.json"), Path("/d/\0")]
    tables = TablesByDump(tmp_path / "out", dict.fromkeys(dumps, "pytorch"))
    for dump in dumps:
        tables.add(dump, judged("Torch.add.0.forward", "pass"))
    folders = {table.details.parent.relative_to(tmp_path / "out") for table in tables.close()}
    assert folders == {Path("d/x"), Path("d/x.json"), Path("elsewhere"), Path("d/%00")}


def test_a_run_without_records_writes_no_tables(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    assert pytester.runpytest_inprocess("--msprobe-csv=out").ret == 0
    assert not (pytester.path / "out").exists()


def test_tables_that_cannot_be_written_are_reported_and_the_run_goes_on(dump: None, check: Any, pytester: Any) -> None:
    with (pytester.path / "conftest.py").open("a") as file:
        file.write("\nimport pathlib\ndef pytest_collection_finish():\n    pathlib.Path('out').touch()\n")
    checked = run(check, "-k", "softmax")
    assert checked.outcomes == {f"Functional.softmax.0.{way}": "passed" for way in ("forward", "backward")}
    assert checked.exit_code == pytest.ExitCode.INTERNAL_ERROR
    assert f"ERROR: msprobe tables: {pytester.path / 'out'}: cannot be written: File exists" in checked.output
    assert "INTERNALERROR" not in checked.output


def test_a_disk_that_takes_no_more_leaves_no_half_table(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "out")
    result = DirectionResult("Torch.abs.0.forward", Verdict("skip", "", "x" * 200))
    tables.add(result)
    with pytest.raises(OSError, match="File too large"), files_of_at_most(500):
        tables.add(result)
    tables.discard()
    assert list((tmp_path / "out").iterdir()) == []
