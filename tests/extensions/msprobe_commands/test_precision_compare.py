from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import Entry, JournalWriter
from pytest_msprobe.journal import Header as JournalHeader
from pytest_msprobe.modes.check.baselines.baseline_file import BaselineWriter, Header
from pytest_msprobe.modes.check.baselines.tensor_folder import OutputRow, RecordRow
from pytest_msprobe.reports.csv import METRIC_COLUMNS
from pytest_msprobe.results.result import DirectionResult, OutputResult, Start

TABLES = Path(__file__).parents[2] / "data" / "precision_compare"
VERSIONS = [("1.2.2", "msprobe-1.2"), ("26.2.0", "msprobe-26")]

CARD = Start("cuda:0", "a card, torch 2.13.0", {"TF32 matmul": "on"})

# The API whose GPU row was taken out: msprobe leaves it out without a word.
LACKING = "Functional.layer_norm.2"
# float64, which msprobe marks as skipped in a direction that does not exist.
NOT_COMPARED = "Torch.exp.0"


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def compare(tmp_path: Path, version: str, policy: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return our details and result tables for a pair of msprobe's tables."""
    npu, gpu = TABLES / version / "npu.csv", TABLES / version / "gpu.csv"
    assert main(["msprobe", "precision-compare", str(npu), str(gpu), "--policy", policy, "--csv", str(tmp_path)]) == 1
    [details], [result] = (list(tmp_path.glob(f"api_precision_compare_{kind}_*.csv")) for kind in ("details", "result"))
    return read(details), read(result)


@pytest.mark.parametrize(("version", "policy"), VERSIONS)
def test_every_cell_is_msprobes_own(tmp_path: Path, version: str, policy: str) -> None:
    (header, *ours), _ = compare(tmp_path, version, policy)
    expected_header, *expected = read(TABLES / version / "expected_details.csv")
    assert len(header) == 28
    assert header == expected_header
    found = {row[0]: row for row in ours}
    assert [row[0] for row in ours if not row[0].startswith(LACKING)] == [row[0] for row in expected]
    for row in expected:
        cells = zip(header, row, found[row[0]], strict=True)
        different = [cell for cell in cells if cell[0] != "Message" and not same(*cell[1:])]
        assert different == [], row[0]


def same(theirs: str, ours: str) -> bool:
    try:
        return math.isclose(float(theirs), float(ours), rel_tol=1e-7, abs_tol=1e-13)
    except ValueError:
        return theirs.strip() == ours.strip()


@pytest.mark.parametrize(("version", "policy"), VERSIONS)
def test_the_result_table_differs_where_msprobe_hides_or_invents_something(
    tmp_path: Path, version: str, policy: str
) -> None:
    _, ours = compare(tmp_path, version, policy)
    expected = read(TABLES / version / "expected_result.csv")
    statuses = {row[0]: row[1:3] for row in ours}
    invented = {NOT_COMPARED: ["SKIP", " "]}
    assert statuses == {
        **{row[0]: row[1:3] for row in expected},
        LACKING: ["SKIP" if version == "1.2.2" else "pass", " "],
        **invented,
    }


def header(**changes: object) -> Header:
    fields = {
        "written_by": "0.1.0",
        "dumps": {"abc": "dump.json"},
        "seed": 0,
        "real_data": "auto",
        "policy": "msprobe-26",
        "starts": [CARD, Start("cuda:1", CARD.description, CARD.math_modes)],
    }
    return Header(**{**fields, **changes})  # type: ignore[arg-type]


def row(record: str, rmse: float, **changes: float) -> RecordRow:
    metrics = dict.fromkeys(("small_value_err_ratio", "max_rel_error", "mean_rel_error", "nonfinite_mismatch"), 0.0)
    output = OutputRow(
        "output.0",
        "pass",
        "cascade",
        "",
        "torch.float32",
        "torch.float64",
        (2, 3),
        {**metrics, "rmse": rmse, **changes},
    )
    return RecordRow(record, "abc", "pass", outputs=(output,))


def save(path: Path, *rows: RecordRow, **changes: object) -> str:
    writer = BaselineWriter(path)
    for one in rows:
        writer.add(one)
    writer.finish(header(**changes))
    return str(path)


NAME = "Torch.cumsum.0.forward"


@pytest.mark.parametrize(("npu", "status"), [(0.01, 0), (0.02, 0), (0.021, 1)])
def test_the_exit_status_shows_whether_something_is_wrong(tmp_path: Path, npu: float, status: int) -> None:
    files = save(tmp_path / "npu.json", row(NAME, npu)), save(tmp_path / "gpu.json", row(NAME, 0.0105))
    assert main(["msprobe", "precision-compare", *files, "--policy", "msprobe-26"]) == status


def test_the_failing_records_come_first_and_the_runs_are_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "Torch.cumsum.1.forward"
    npu = save(tmp_path / "npu.json", row(NAME, 0.0), row(other, 1.0))
    gpu = save(tmp_path / "gpu.json", row(NAME, 0.0), row(other, 0.001))
    assert main(["msprobe", "precision-compare", npu, gpu, "--policy", "msprobe-26"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"FAILED {other}"
    assert "output.0 torch.float32 (2, 3): msprobe_benchmark: rmse 1000 (2 allowed)" in lines[1]
    assert f"baseline: {gpu}: 2 records, seed 0, real_data auto, a card, torch 2.13.0; TF32 matmul on" in lines
    assert "2 API records: 1 passed, 1 failed" in lines


def test_a_missing_row_is_counted_and_no_failure_is_hidden_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed = RecordRow("Torch.cumsum.2.forward", "abc", "fail", "the process that ran it died")
    needs, finished = row("Torch.cumsum.1.forward", 1.0), row("Torch.cumsum.3.forward", 0.0)
    npu = save(tmp_path / "npu.json", row(NAME, 0.0), needs, crashed, finished)
    gpu = save(tmp_path / "gpu.json", row(NAME, 0.0))
    assert main(["msprobe", "precision-compare", npu, gpu, "--policy", "msprobe-26"]) == 1
    out = capsys.readouterr().out
    assert "FAILED Torch.cumsum.2.forward\n  the process that ran it died" in out
    assert "4 API records: 2 passed, 1 failed, 1 skipped" in out
    assert "1 skipped: recorded numbers that this depends on are missing" in out


def test_the_gpu_run_that_gave_no_numbers_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npu = save(tmp_path / "npu.json", row(NAME, 1.0), row("Torch.cumsum.1.forward", 0.0))
    gone = RecordRow(NAME, "abc", "fail", "out of memory")
    gpu = save(tmp_path / "gpu.json", gone, row("Torch.cumsum.1.forward", 0.0))
    assert main(["msprobe", "precision-compare", npu, gpu, "--policy", "msprobe-26", "--csv", str(tmp_path)]) == 0
    [details] = tmp_path.glob("*details*")
    assert "the recorded run has no numbers: out of memory" in read(details)[1][-1]
    assert "1 passed, 1 skipped" in capsys.readouterr().out


def test_numbers_of_other_inputs_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npu = save(tmp_path / "npu.json", row(NAME, 1.0, scale=0.5))
    gpu = save(tmp_path / "gpu.json", row(NAME, 1.0, scale=0.6))
    assert main(["msprobe", "precision-compare", npu, gpu, "--policy", "msprobe-26"]) == 2
    assert "1 API record: 1 skipped" in capsys.readouterr().out


@pytest.mark.parametrize(("version", "policy"), VERSIONS)
def test_tables_are_judged_by_the_policy_of_their_version(
    version: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["msprobe", "precision-compare", *(str(TABLES / version / f"{run}.csv") for run in ("npu", "gpu"))]) == 1
    )
    assert f"policy:   {policy}" in capsys.readouterr().out


def test_runs_are_judged_by_the_policy_that_they_were_made_under(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = save(tmp_path / "npu.json", row(NAME, 0.03)), save(tmp_path / "gpu.json", row(NAME, 0.0105))
    assert main(["msprobe", "precision-compare", *files]) == 1
    assert "policy:   msprobe-26" in capsys.readouterr().out


def test_runs_are_judged_at_the_level_that_they_were_made_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = save(tmp_path / "npu.json", row(NAME, 0.01), level="L2"), save(tmp_path / "gpu.json", row(NAME, 0.01))
    assert main(["msprobe", "precision-compare", *files]) == 0
    assert "policy:   msprobe-26, level L2" in capsys.readouterr().out
    save(tmp_path / "gpu.json", row(NAME, 0.01), level="by API")
    assert main(["msprobe", "precision-compare", *files]) == 2
    assert f"{files[1]}: was made at the level by API, {files[0]} at L2; pass --policy" in capsys.readouterr().err


def test_a_table_is_judged_by_the_policy_of_the_baseline_next_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = save(tmp_path / "gpu.json", row(NAME, 0.0105))
    assert main(["msprobe", "precision-compare", str(cumsum_table(tmp_path)), gpu]) == 0
    assert "policy:   msprobe-26" in capsys.readouterr().out


def cumsum_table(folder: Path) -> Path:
    """Return a table in which nothing tells msprobe 1.2 from 26: only their standards for other APIs differ."""
    metrics = ("small_value_err_ratio", "rmse", "max_rel_error", "mean_rel_error")
    cells = ["0" if metric in metrics else " " for metric in METRIC_COLUMNS.values()]
    path = folder / "accuracy_checking_details_20260101000000.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["API Name", "Bench Dtype", "DEVICE Dtype", "Shape", *METRIC_COLUMNS, "Status", "Message"])
        writer.writerow([f"{NAME}.output.0", "torch.float64", "torch.float32", "(2, 3)", *cells, "pass", " "])
    return path


def test_a_policy_that_nothing_shows_has_to_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(cumsum_table(tmp_path))
    npu, other, own = (
        save(tmp_path / f"{policy}.json", row(NAME, 0.01), policy=policy)
        for policy in ("msprobe-26", "default", "strict.yaml")
    )
    for files, problem in (
        ((table, table), f"{table}: fits both policies msprobe-1.2 and msprobe-26; pass --policy"),
        ((npu, other), f"{other}: was made under the policy default, {npu} under msprobe-26; pass --policy"),
        ((own, own), f"{own}: was made under a policy of your own; pass its file as --policy"),
    ):
        assert main(["msprobe", "precision-compare", *files]) == 2
        assert problem in capsys.readouterr().err


def test_a_comparison_that_judged_nothing_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(TABLES / "1.2.2" / f"{run}.csv") for run in ("npu", "gpu")]
    assert main(["msprobe", "precision-compare", *files, "--policy", "default"]) == 2
    shown = capsys.readouterr()
    assert "41 API records: 41 skipped" in shown.out
    assert "none of the 41 records was judged" in shown.err


def test_a_journal_that_holds_numbers_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = row(NAME, 1.0).outputs[0].metrics
    verdict = Verdict("pass", "cascade")
    output = OutputResult("output.0", verdict, "torch.float32", "torch.float64", (2, 3), numbers)
    settings = {"seed": "0", "real_data": "auto"}
    path = tmp_path / "run.jsonl"
    writer = JournalWriter(path, JournalHeader(dumps={"/a/dump.json": "abc"}, settings=settings, root="/a"))
    writer.write(CARD)
    writer.write(Entry(f"dump.json::{NAME}", "pass", DirectionResult(NAME, verdict, (output,))))
    writer.close()
    gpu = save(tmp_path / "gpu.json", row(NAME, 0.001))
    assert main(["msprobe", "precision-compare", str(path), gpu, "--policy", "msprobe-26"]) == 1
    out = capsys.readouterr().out
    assert f"FAILED {NAME}" in out
    assert f"judged:   {path}: 1 records, seed 0, real_data auto, a card, torch 2.13.0; TF32 matmul on" in out


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seed": 1}, "with seed 0, {gpu} with 1, so their inputs differ"),
        ({"real_data": "never"}, "with real_data auto, {gpu} with never, so their inputs differ"),
    ],
)
def test_runs_with_other_inputs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], problem: str
) -> None:
    npu, gpu = save(tmp_path / "npu.json", row(NAME, 0.0)), save(tmp_path / "gpu.json", row(NAME, 0.0), **changes)
    assert main(["msprobe", "precision-compare", npu, gpu]) == 2
    assert problem.format(gpu=gpu) in capsys.readouterr().err


def test_what_cannot_be_compared_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npu = save(tmp_path / "npu.json", row(NAME, 0.0))
    empty = tmp_path / "empty.jsonl"
    JournalWriter(empty, JournalHeader(dumps={}, settings={})).close()
    explored = tmp_path / "explored.jsonl"
    JournalWriter(explored, JournalHeader(dumps={}, settings={"explore": "10"})).close()
    other = RecordRow(NAME, "other", "pass", outputs=row(NAME, 0.0).outputs)
    table = TABLES / "1.2.2" / "gpu.csv"
    for words, problem in (
        ([str(tmp_path / "none.json")], "none.json: cannot be read: No such file or directory"),
        ([str(empty)], "no numbers to compare"),
        ([str(explored)], "made with --msprobe-explore"),
        ([save(tmp_path / "other.json", other)], "compare runs of the same dumps"),
        ([str(table)], "compare runs of the same dumps"),
        ([npu, "--policy", "strict"], "unknown policy 'strict'"),
        ([npu, "--policy", "none.yaml"], "none.yaml"),
        ([npu, "--policy", "msprobe-1.2", "--level", "L1"], "level 'L1': policy msprobe-1.2 has no levels"),
        ([npu, "--csv", npu], "cannot be written: File exists"),
    ):
        assert main(["msprobe", "precision-compare", npu, *words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("pytest-msprobe: ")
        assert problem in error


def test_hostile_names_steer_neither_terminal_nor_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "\x1b[2J\x1b]0;owned\x07Torch.cumsum.0.forward",
        "=cmd()|calc.0.forward",
        "../../etc/passwd",
        "a\nb.0.forward",
    ]
    npu = save(tmp_path / "npu.json", row(NAME, 0.0), *(RecordRow(name, "abc", "fail", "=1+1") for name in names))
    gpu = save(tmp_path / "gpu.json", row(NAME, 0.0))
    assert main(["msprobe", "precision-compare", npu, gpu, "--csv", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert sorted(path.name.rpartition("_")[0] for path in (tmp_path / "out").iterdir()) == [
        "api_precision_compare_details",
        "api_precision_compare_result",
    ]
    for path in (tmp_path / "out").iterdir():
        assert not any(cell.startswith(("=", "+", "-", "@")) for line in read(path) for cell in line)
