from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.baseline_file import read_baseline
from pytest_msprobe.modes.check.baselines.details_table import read_details

TABLES = Path(__file__).parents[3] / "data" / "precision_compare"


@pytest.mark.parametrize("version", ["1.2.2", "26.2.0"])
def test_a_table_of_msprobe_is_read(version: str) -> None:
    rows = {row.record: row for row in read_details(TABLES / version / "gpu.csv")}
    softmax = rows["Functional.softmax.0.backward"]
    [gradient] = softmax.outputs
    assert (gradient.path, gradient.dtype, gradient.shape) == ("output.0", "torch.float32", (33, 48))
    assert gradient.metrics["rmse"] > 0
    assert gradient.metrics["nonfinite_mismatch"] == 0
    assert [output.path for output in rows["Torch.matmul.0.backward"].outputs] == ["output.0", "output.1"]
    assert rows["Torch.linalg.norm.0.forward"].outputs[0].shape == ()


def test_a_table_is_accepted_where_a_baseline_is(tmp_path: Path) -> None:
    baseline = read_baseline(TABLES / "1.2.2" / "gpu.csv")
    assert baseline.header is None
    assert baseline.row("any dump", "Functional.softmax.0.forward").outputs[0].metrics["max_rel_error"] > 0


def changed(tmp_path: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> Path:
    text = (TABLES / "1.2.2" / "gpu.csv").read_text(encoding="utf-8-sig")
    path = tmp_path / "gpu.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(change(list(csv.reader(io.StringIO(text)))))
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: [row[:10] for row in rows], "neither a baseline nor msprobe's details table"),
        (lambda rows: [*rows, rows[1]], "occurs twice"),
        (lambda rows: [*rows[:-1], rows[-1][:7]], "another number of cells than the header"),
        (lambda rows: [*rows, ["=cmd()|calc", *rows[-1][1:], "more"]], "another number of cells than the header"),
        (lambda rows: [*rows[:-1], [rows[-1][0], *rows[-1][1:5], "much", *rows[-1][6:]]], "could not convert string"),
    ],
)
def test_a_table_that_is_damaged_is_an_error(
    tmp_path: Path, change: Callable[[list[list[str]]], list[list[str]]], problem: str
) -> None:
    path = changed(tmp_path, change)
    with pytest.raises(BaselineError, match=problem) as caught:
        read_details(path)
    assert str(path) in str(caught.value)


def test_a_table_cut_within_a_quoted_cell_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    whole = (TABLES / "1.2.2" / "gpu.csv").read_bytes()
    path.write_bytes(whole[: whole.rindex(b"SPACE")])
    with pytest.raises(BaselineError, match="damaged"):
        read_details(path)


def test_nan_in_a_table_counts_as_wrong_elements(tmp_path: Path) -> None:
    def with_nan(rows: list[list[str]]) -> list[list[str]]:
        at = rows[0].index("均方根误差")
        return [rows[0], *([*row[:at], "nan", *row[at + 1 :]] for row in rows[1:])]

    rows = {row.record: row for row in read_details(changed(tmp_path, with_nan))}
    assert rows["Functional.softmax.0.forward"].outputs[0].metrics["nonfinite_mismatch"] == 1
