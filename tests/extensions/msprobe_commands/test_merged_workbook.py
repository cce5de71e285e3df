"""Merging the tables of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter

from pytest_msprobe.commands.main import main

TITLES = ["NPU Name", "Max diff", "L2norm diff", "NPU max", "Bench max"]


def table(folder: Path, name: str, *rows: list[Any], titles: list[str] = TITLES) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"compare_result_{name}"
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in [titles, *rows]) + "\n")
        return
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet()
        for line, row in enumerate([titles, *rows]):
            sheet.write_row(line, 0, row)


def configuration(folder: Path, text: str) -> Path:
    path = folder / "merge.yaml"
    path.write_text(text)
    return path


def merged(tmp_path: Path, text: str = "api: [Distributed.all_reduce]\ncompare_index: [Max diff]") -> dict[str, Any]:
    arguments = ["-i", tmp_path / "in", "-o", tmp_path / "out", "-config", configuration(tmp_path, text)]
    assert main(["msprobe", "merge-results", *map(str, arguments)]) == 0
    (path,) = (tmp_path / "out").glob("multi_ranks_compare_merge_*.xlsx")
    return {
        sheet.title: [list(line) for line in sheet.iter_rows(values_only=True)]
        for sheet in openpyxl.load_workbook(path)
    }


def test_each_metric_is_a_sheet_with_a_column_per_rank_in_the_order_of_numbers(tmp_path: Path) -> None:
    for rank, kind in ((10, "xlsx"), (9, "csv")):
        row = ["Distributed.all_reduce.0.forward.input.0", rank / 4, 1, 2, 3]
        table(tmp_path / "in", f"rank{rank}-rank{rank}_20260131120000.{kind}", row)
    sheets = merged(tmp_path, "api: [Distributed.all_reduce]")
    assert sheets == {
        "Max diff": [["NPU Name", "rank9", "rank10"], ["Distributed.all_reduce.0.forward.input.0", 2.25, 2.5]],
        "L2norm diff": [["NPU Name", "rank9", "rank10"], ["Distributed.all_reduce.0.forward.input.0", 1, 1]],
    }


def test_metrics_may_be_spelled_as_in_msprobes_manual(tmp_path: Path) -> None:
    for rank in (0, 1):
        row = ["Distributed.all_reduce.0.forward.input.0", 1, rank, 2, 3]
        table(tmp_path / "in", f"rank{rank}-rank{rank}_20260131120000.csv", row)
    sheets = merged(tmp_path, "api: [Distributed.all_reduce]\ncompare_index: [Norm diff, max diff]")
    assert sheets["L2norm diff"][1] == ["Distributed.all_reduce.0.forward.input.0", 0, 1]
    assert list(sheets) == ["L2norm diff", "Max diff"]


def test_a_rank_that_lacks_a_row_has_a_blank_cell(tmp_path: Path) -> None:
    table(tmp_path / "in", "rank0-rank0_20260131120000.csv", ["Distributed.all_reduce.0.forward.input.0", 1, 1, 2, 3])
    table(tmp_path / "in", "rank1-rank1_20260131120000.csv", ["Distributed.all_reduce.1.forward.input.0", 2, 1, 2, 3])
    assert merged(tmp_path)["Max diff"][1:] == [
        ["Distributed.all_reduce.0.forward.input.0", 1, None],
        ["Distributed.all_reduce.1.forward.input.0", None, 2],
    ]


def test_a_prefix_matches_whole_words_from_the_start(tmp_path: Path) -> None:
    for rank in (0, 1):
        rows = [[f"{name}.0.forward.input.0", 1, 1, 2, 3] for name in ("Torch.add", "MyTorch.add", "Torch.addmm")]
        table(tmp_path / "in", f"rank{rank}-rank{rank}_20260131120000.csv", *rows)
    lines = merged(tmp_path, "api: [Torch.add]\ncompare_index: [Max diff]")["Max diff"]
    assert [line[0] for line in lines[1:]] == ["Torch.add.0.forward.input.0"]


def test_what_has_no_metric_shows_what_was_compared(tmp_path: Path) -> None:
    for rank in (0, 1):
        row = ["Distributed.all_reduce.0.forward.input.1", "N/A", "N/A", "sum", "max"]
        table(tmp_path / "in", f"rank{rank}-rank{rank}_20260131120000.csv", row)
    assert merged(tmp_path)["Max diff"][1][1:] == ["NPU:sum  Bench:max"] * 2


def test_ranks_compared_across_numbers_are_merged(tmp_path: Path) -> None:
    for target, golden in ((0, 4), (1, 5)):
        row = ["Distributed.all_reduce.0.forward.input.0", target, 1, 2, 3]
        table(tmp_path / "in", f"rank{target}-rank{golden}_20260131120000.csv", row)
    assert merged(tmp_path)["Max diff"][0] == ["NPU Name", "rank0-rank4", "rank1-rank5"]


def test_a_cell_like_a_formula_is_text(tmp_path: Path) -> None:
    for rank in (0, 1):
        row = ["Distributed.all_reduce.0.forward.input.1", "=1+1", 1, 2, 3]
        table(tmp_path / "in", f"rank{rank}-rank{rank}_20260131120000.csv", row)
    assert merged(tmp_path)["Max diff"][1][1:] == ["=1+1"] * 2


def failing(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    path = configuration(tmp_path, text)
    status = main(
        ["msprobe", "merge-results", "-i", f"{tmp_path / 'in'}", "-o", f"{tmp_path / 'out'}", "-config", f"{path}"]
    )
    assert status == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("api: []", "is not a list of names"),
        ("compare_index: [Max diff]", "is not a list of names"),
        (
            "api: [Torch.add]\ncompare_index: [Sum diff]",
            "unknown title 'Sum diff'; did you mean 'L2norm diff'? known are Cosine,",
        ),
        ("api: [Torch.add]\ncompare_index: 3", "is not a list of titles"),
        ("- a", "expected the key api"),
        ("api: [", "not valid YAML"),
        ("api: !!int x", "not valid YAML at line 1: not a value of int"),
        (f"api: {'[' * 5000}{']' * 5000}", "nested too deeply"),
    ],
)
def test_a_wrong_configuration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    error = failing(tmp_path, capsys, text)
    assert "merge.yaml" in error
    assert problem in error


def test_one_table_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path / "in", "rank0-rank0_20260131120000.csv", ["Torch.add.0.forward.input.0", 1, 1, 2, 3])
    assert "expected two or more, named like" in failing(tmp_path, capsys, "api: [Torch.add]")


def test_two_tables_of_one_rank_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for second in (0, 1):
        table(tmp_path / "in", f"rank0-rank0_2026013112000{second}.csv", ["Torch.add.0.forward.input.0", 1, 1, 2, 3])
    assert "is of rank0, too" in failing(tmp_path, capsys, "api: [Torch.add]")


def test_a_folder_too_high_names_those_of_its_folders_that_have_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in ("step10", "step2"):
        (tmp_path / "in" / step).mkdir(parents=True)
        for rank in (0, 1):
            table(tmp_path / "in" / step, f"rank{rank}-rank{rank}_20260131120000.csv")
    (tmp_path / "in/step3").mkdir()
    words = ["-i", tmp_path / "in", "-o", tmp_path, "-config", configuration(tmp_path, "api: [Torch]\n")]
    assert main(["msprobe", "merge-results", *map(str, words)]) == 2
    assert "0 tables of ranks; its folders have tables, pass one of them: step2, step10\n" in capsys.readouterr().err


def test_tables_of_checksums_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        table(tmp_path / "in", f"rank{rank}_20260131120000.csv", titles=["NPU Name", "NPU MD5", "BENCH MD5", "Result"])
    assert "is a table of checksums" in failing(tmp_path, capsys, "api: [Torch.add]")


def test_what_no_table_holds_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        table(tmp_path / "in", f"rank{rank}_20260131120000.csv", ["Torch.add.0.forward.input.0", 1, 1, 2, 3])
    assert "no table holds Torch.sub" in failing(tmp_path, capsys, "api: [Torch.sub]")


def test_a_file_that_is_no_workbook_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        table(tmp_path / "in", f"rank{rank}_20260131120000.csv", ["Torch.add.0.forward.input.0", 1, 1, 2, 3])
    (tmp_path / "in" / "compare_result_rank2_20260131120000.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    assert "rank2_20260131120000.xlsx: not a workbook" in failing(tmp_path, capsys, "api: [Torch.add]")


@pytest.mark.parametrize("damaged", ["Distributed.all_reduce.0.forward.input.0", "a,b,c,d,e,f", "Torch.x,1"])
def test_a_row_of_another_length_is_named_by_its_line(
    tmp_path: Path, damaged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        row = ["Distributed.all_reduce.0.forward.input.0", 1, 1, 2, 3]
        table(tmp_path / "in", f"rank{rank}_20260131120000.csv", row)
    path = tmp_path / "in/compare_result_rank1_20260131120000.csv"
    path.write_text(path.read_text() + f"\n{damaged}\n")
    words = ["-i", tmp_path / "in", "-o", tmp_path / "out", "-config", configuration(tmp_path, "api: [Torch.x]")]
    assert main(["msprobe", "merge-results", *map(str, words)]) == 2
    reported = capsys.readouterr().err
    assert f"{path}: line 4 has {damaged.count(',') + 1} cells in place of 5; the table is damaged" in reported
    assert not (tmp_path / "out").exists()


def test_a_workbook_whose_rows_end_early_has_blank_cells(tmp_path: Path) -> None:
    for rank in (0, 1):
        whole = ["Distributed.all_reduce.0.forward.input.0", 1, 1, 2, 3]
        table(tmp_path / "in", f"rank{rank}_20260131120000.xlsx", whole, ["Distributed.all_reduce.1.forward.input.0"])
    assert merged(tmp_path)["Max diff"][2] == ["Distributed.all_reduce.1.forward.input.0", None, None]
