"""The tables of a comparison; their titles are those that msprobe's reference lists."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.reports.html import write_html
from pytest_msprobe.modes.compare.reports.table_columns import columns, neutral, write_csv
from pytest_msprobe.modes.compare.reports.xlsx import colours, write_xlsx
from pytest_msprobe.modes.compare.rows import ComparedCall, DataMode, Row

STATISTICS_1_2 = """
NPU Name, Bench Name, NPU Dtype, Bench Dtype, NPU Tensor Shape, Bench Tensor Shape, Max diff, Min diff, Mean
diff, L2norm diff, MaxRelativeErr, MinRelativeErr, MeanRelativeErr, NormRelativeErr, NPU max, NPU min, NPU
mean, NPU l2norm, Bench max, Bench min, Bench mean, Bench l2norm, Result, Err_message, NPU_Stack_Info
"""
TENSOR_1_2 = """
NPU Name, Bench Name, NPU Dtype, Bench Dtype, NPU Tensor Shape, Bench Tensor Shape, Cosine, MaxAbsErr,
MaxRelativeErr, One Thousandth Err Ratio, Five Thousandths Err Ratio, NPU max, NPU min, NPU mean, NPU l2norm,
Bench max, Bench min, Bench mean, Bench l2norm, Accuracy Reached or Not, Err_message, NPU_Stack_Info,
Data_name
"""
MD5_1_2 = """
NPU Name, Bench Name, NPU Dtype, Bench Dtype, NPU Tensor Shape, Bench Tensor Shape, NPU MD5, BENCH MD5,
Result, NPU_Stack_Info
"""
TENSOR_26 = """
NPU Name, Bench Name, NPU Dtype, Bench Dtype, NPU Tensor Shape, Bench Tensor Shape, NPU Requires_grad, Bench
Requires_grad, Cosine, EucDist, MaxAbsErr, MaxRelativeErr, One Thousandth Err Ratio, Five Thousandths Err
Ratio, NPU max, NPU min, NPU mean, NPU l2norm, Bench max, Bench min, Bench mean, Bench l2norm, Requires_grad
Consistent, Result, Err_message, NPU_Stack_Info, Data_name
"""


def value(name: str = "Torch.mul.0.forward.output.0", dtype: str = "torch.float32", **fields: Any) -> Value:
    return Value(name, "torch.Tensor", dtype, (2, 3), False, fields.pop("statistics", (1.0, -1.0, 0.5, 2.0)), **fields)


def row(outcome: Any = "pass", group: Any = "output", **fields: Any) -> Row:
    fields = {"target": value(), "golden": value(), "metrics": {}} | fields
    return Row(group=group, place=f"{group}.0", outcome=outcome, **fields)


def call(*rows: Row, mode: DataMode = "statistics", **fields: Any) -> ComparedCall:
    fields = {"outcome": "pass"} | fields
    name = "Torch.mul.0.forward"
    return ComparedCall(
        record=name, pair=0, order=0, mode=mode, target=name, golden=name, partner="name", rows=rows, **fields
    )


def shown(one: ComparedCall, policy: str = "default", with_stack: bool = False) -> list[dict[str, Any]]:
    return [
        {title: cell(one, each) for title, cell in columns(one.mode, policy, with_stack=with_stack)}
        for each in one.rows
    ]


@pytest.mark.parametrize(
    ("mode", "policy", "titles"),
    [
        ("statistics", "msprobe-1.2", STATISTICS_1_2),
        ("tensor", "msprobe-1.2", TENSOR_1_2),
        ("md5", "msprobe-1.2", MD5_1_2),
        ("tensor", "msprobe-26", TENSOR_26),
    ],
)
def test_the_titles_are_those_of_msprobe(mode: DataMode, policy: str, titles: str) -> None:
    wanted = [title.strip() for title in titles.replace("\n", " ").split(",")]
    assert [title for title, _ in columns(mode, policy, with_stack=True)] == wanted


def test_our_own_columns_follow_those_of_msprobe() -> None:
    theirs = columns("statistics", "msprobe-26", with_stack=True)
    ours = columns("statistics", "default", with_stack=True)
    assert [title for title, _ in ours[: len(theirs)]] == [title for title, _ in theirs]


def test_a_relative_error_is_in_per_cent_and_zero_is_a_number() -> None:
    one = call(row(metrics={"max_diff": 0.5, "max_rel_diff": 0.25, "min_diff": 0.0, "min_rel_diff": 0.0}))
    (cells,) = shown(one)
    assert (cells["Max diff"], cells["MaxRelativeErr"], cells["Min diff"], cells["MinRelativeErr"]) == (
        0.5,
        "25.0%",
        0.0,
        0,
    )


def test_what_has_no_partner_shows_the_target_and_nothing_else() -> None:
    (cells,) = shown(call(row("fail", golden=None, unmeasured="unmatched")))
    assert cells["NPU Name"] == "Torch.mul.0.forward.output.0"
    assert {cells[title] for title in ("Bench Name", "Bench Dtype", "Bench max", "Max diff")} == {"N/A"}


@pytest.mark.parametrize("policy", ["default", "msprobe-26"])
def test_what_has_no_partner_and_is_not_wrong_for_it_has_not_passed(policy: str) -> None:
    (cells,) = shown(call(row("skip", golden=None, unmeasured="unmatched")), policy)
    assert (cells["Result"], cells["Err_message"]) == ("N/A", '["No bench data matched."]')
    (cells,) = shown(call(row("skip", target=None, unmeasured="unmatched")), policy)
    assert (cells["Result"], cells["Err_message"]) == ("N/A", '["No NPU data matched."]')


def test_a_value_that_a_mapping_leaves_out_has_not_passed_and_says_why() -> None:
    (cells,) = shown(call(row("skip", golden=None, unmeasured="left out", messages=("a mapping says so",))))
    assert (cells["Result"], cells["Err_message"]) == ("N/A", '["a mapping says so"]')


def test_a_partner_whose_absence_is_wrong_is_an_error() -> None:
    (cells,) = shown(call(row("fail", golden=None, unmeasured="unmatched", messages=("only the target has it",))))
    assert (cells["Result"], cells["Err_message"]) == ("error", '["error: only the target has it"]')


def test_a_golden_value_without_partner_is_a_row_too() -> None:
    (cells,) = shown(call(row("fail", target=None, unmeasured="unmatched")))
    assert (cells["NPU Name"], cells["Bench Name"]) == ("N/A", "Torch.mul.0.forward.output.0")


def test_numbers_that_a_spreadsheet_lacks_are_words() -> None:
    infinite = value(statistics=(math.inf, -math.inf, math.nan, math.inf))
    (cells,) = shown(call(row(target=infinite)))
    assert [cells[f"NPU {name}"] for name in ("max", "min", "mean", "l2norm")] == ["inf", "-inf", "nan", "inf"]


def test_a_plain_value_stands_in_the_place_of_the_statistics() -> None:
    scalar = Value("Torch.mul.0.forward.input.1", "str", text="mean")
    (cells,) = shown(call(row(target=scalar, golden=scalar)))
    assert (cells["NPU Dtype"], cells["NPU Tensor Shape"], cells["NPU max"]) == ("<class 'str'>", "[]", "mean")


def test_shapes_that_differ_are_named_as_msprobe_names_them() -> None:
    (cells,) = shown(call(row("fail", unmeasured="shape"), mode="tensor"), "msprobe-1.2")
    assert (cells["Cosine"], cells["Accuracy Reached or Not"]) == ("shape unmatched", "Unmatched")


FORMULAS = ["=1+1", "+cmd|'/c calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\uff1d1", "%x"]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_take_for_a_formula_is_text_in_csv(tmp_path: Path, text: str) -> None:
    hostile = value(name=text)
    write_csv(tmp_path / "table.csv", [call(row(target=hostile))], columns("statistics", "default", with_stack=False))
    with (tmp_path / "table.csv").open(newline="") as file:
        assert list(csv.reader(file))[1][0] == f"'{text}"


@pytest.mark.parametrize("text", [*FORMULAS, "http://example.org", "mailto:a@b.c"])
def test_what_a_spreadsheet_would_take_for_a_formula_is_text_in_a_workbook(tmp_path: Path, text: str) -> None:
    hostile = value(name=text)
    write_xlsx(tmp_path / "table.xlsx", [call(row(target=hostile))], columns("statistics", "default", with_stack=False))
    cell = openpyxl.load_workbook(tmp_path / "table.xlsx")["Sheet"]["A2"]
    assert (cell.value, cell.data_type, cell.hyperlink) == (text, "s", None)


def workbook_cell(folder: Path, text: str) -> Any:
    write_xlsx(folder / "table.xlsx", [call(row(target=value(name=text)))], columns("md5", "default", with_stack=False))
    return openpyxl.load_workbook(folder / "table.xlsx")["Sheet"]["A2"].value


@given(st.text(st.characters(codec="utf-8", exclude_characters="\ufffe\uffff_", exclude_categories=["Cc"]), min_size=1))
def test_text_comes_back_from_a_workbook(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    assert workbook_cell(tmp_path_factory.mktemp("book"), text) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\x00b", "a_x0000_b"),
        ("a_x0041_", "a_x005F_x0041_"),
        ("\ud800", "_xD800_"),
        ("a\rb", "a_x000D_b"),
        ("_x", "_x"),
    ],
)
def test_what_xml_cannot_hold_is_written_as_workbooks_write_it(tmp_path: Path, text: str, written: str) -> None:
    assert workbook_cell(tmp_path, text) == written


def test_text_that_no_cell_can_hold_is_cut_between_characters(tmp_path: Path) -> None:
    assert workbook_cell(tmp_path, "a" + "\U0001f600" * 20_000) == "a" + "\U0001f600" * 16_383


def test_a_comparison_without_calls_has_its_titles(tmp_path: Path) -> None:
    assert write_xlsx(tmp_path / "table.xlsx", [], columns("md5", "msprobe-1.2", with_stack=False)) == 0
    assert openpyxl.load_workbook(tmp_path / "table.xlsx")["Sheet"].max_row == 1


@given(st.floats() | st.integers() | st.sampled_from(["-1", "-1.5e-07", "-inf", "+3", "-12%"]))
def test_a_number_is_left_as_it_is(number: Any) -> None:
    assert neutral(number) is number


def test_both_kinds_of_file_hold_the_same_cells(tmp_path: Path) -> None:
    calls = [call(row("fail", metrics={"max_diff": 0.25}, messages=("differs",)), stack=("File a", "File b"))]
    layout = columns("statistics", "default", with_stack=True)
    assert write_csv(tmp_path / "table.csv", calls, layout) == write_xlsx(tmp_path / "table.xlsx", calls, layout) == 1
    with (tmp_path / "table.csv").open(newline="") as file:
        texts = list(csv.reader(file))
    sheet = openpyxl.load_workbook(tmp_path / "table.xlsx")["Sheet"]
    cells = [["" if cell is None else str(cell) for cell in line] for line in sheet.iter_rows(values_only=True)]
    same = [
        [a == b or float(a) == float(b) for a, b in zip(*lines, strict=True)]
        for lines in zip(texts, cells, strict=True)
    ]
    assert all(map(all, same))


def test_a_full_sheet_is_followed_by_another_with_titles(tmp_path: Path) -> None:
    calls = [call(row(), row()), call(row())]
    write_xlsx(tmp_path / "table.xlsx", calls, columns("md5", "msprobe-1.2", with_stack=False), sheet_rows=3)
    book = openpyxl.load_workbook(tmp_path / "table.xlsx")
    assert {sheet.title: sheet.max_row for sheet in book} == {"Sheet": 3, "part_2": 2}
    assert book["part_2"]["A1"].value == "NPU Name"


def test_failed_rows_are_red_and_warned_ones_yellow(tmp_path: Path) -> None:
    calls = [call(row("fail"), row("warn"), row())]
    write_xlsx(tmp_path / "table.xlsx", calls, columns("statistics", "default", with_stack=False))
    sheet = openpyxl.load_workbook(tmp_path / "table.xlsx")["Sheet"]
    assert [sheet.cell(line, 1).fill.fgColor.rgb for line in (2, 3, 4)] == ["FFFF0000", "FFFFFF00", "00000000"]


def grown(mode: DataMode, before: dict[str, float], after: dict[str, float]) -> str:
    one = call(row(group="input", metrics=before), row(metrics=after), mode=mode)
    return colours(one)[1]


@pytest.mark.parametrize(
    ("mode", "before", "after", "colour"),
    [
        ("statistics", {"max_diff": 1.0, "max_rel_diff": 0.0}, {"max_diff": 20.0, "max_rel_diff": 0.0}, "yellow"),
        ("statistics", {"max_diff": 1.0, "max_rel_diff": 0.0}, {"max_diff": 5.0, "max_rel_diff": 0.0}, ""),
        ("statistics", {"max_diff": 0.0, "max_rel_diff": 0.0}, {"max_diff": 0.1, "max_rel_diff": 0.6}, "red"),
        ("statistics", {"max_diff": 0.0, "max_rel_diff": 0.0}, {"max_diff": 0.1, "max_rel_diff": 0.2}, "yellow"),
        ("statistics", {"max_diff": 0.0, "max_rel_diff": 0.1}, {"max_diff": 0.1, "max_rel_diff": 0.2}, ""),
        (
            "tensor",
            {"max_abs_err": 0.0, "rel_err_thousandth": 1.0},
            {"max_abs_err": 0.1, "rel_err_thousandth": 0.5},
            "red",
        ),
        (
            "tensor",
            {"max_abs_err": 0.0, "rel_err_thousandth": 1.0},
            {"max_abs_err": 0.1, "rel_err_thousandth": 0.8},
            "yellow",
        ),
        ("tensor", {"max_abs_err": 0.0, "cosine_sim": 1.0}, {"max_abs_err": 0.1, "cosine_sim": 0.8}, "yellow"),
        ("tensor", {"max_abs_err": 0.0, "cosine_sim": 1.0}, {"max_abs_err": 2e10, "cosine_sim": 1.0}, "red"),
        ("md5", {}, {}, ""),
    ],
)
def test_errors_that_grow_through_a_call_are_coloured(
    mode: DataMode, before: dict[str, float], after: dict[str, float], colour: str
) -> None:
    assert grown(mode, before, after) == colour


def test_nan_on_the_targets_side_is_red() -> None:
    broken = value(statistics=(math.nan, -1.0, 0.0, 1.0))
    assert colours(call(row(target=broken))) == ["red"]


def test_a_full_disk_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_csv(Path("/dev/full"), [call(row())] * 2000, columns("statistics", "default", with_stack=False))


@pytest.mark.parametrize(
    "name", ["Torch./*SCRIPT*/x.0.forward", "Torch./*STYLE*/.0.forward", "Torch./*DATA*/.0.forward"]
)
def test_a_record_called_as_a_placeholder_of_the_page_is_data_of_it(tmp_path: Path, name: str) -> None:
    write_html(tmp_path / "page.html", [replace(call(row()), record=name)], title="a", about="b", pairs=["c"])
    text = (tmp_path / "page.html").read_text()
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert name in json.dumps(json.loads(data))
