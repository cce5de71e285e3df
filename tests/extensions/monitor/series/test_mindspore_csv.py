"""The files that msprobe 1.2.2 writes of MindSpore; the texts are those that it wrote of the same numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from msprobe_hooks.extensions.monitor.series.reader import open_run
from msprobe_hooks.extensions.monitor.series.tables import Row
from msprobe_hooks.extensions.monitor.series.writer import SeriesWriter, open_writer


@pytest.fixture
def writer(tmp_path: Path) -> SeriesWriter:
    return open_writer("mindspore-csv", tmp_path, ("norm", "min"), ndigits=6, steps_per_file=2)


def test_a_line_has_what_a_cell_is_given_and_what_it_gives(writer: SeriesWriter, tmp_path: Path) -> None:
    writer.add(
        [
            Row("actv", 0, "a.input", 0, 0, (2.8284271, 1.0)),
            Row("actv", 0, "a.output", 0, 0, (2.396791, -1.566224)),
            Row("actv", 0, "a.input", 0, 1, (2.8284271, 1.0)),
            Row("actv", 0, "a.output", 0, 1, (math.nan, -1.566224)),
            Row("actv_grad", 0, "a.output", 0, 0, (0.877053, -0.482342)),
        ]
    )
    assert (tmp_path / "actv_0-1.csv").read_text() == (
        "vpp_stage,module_name,step,input.norm,input.min,output.norm,output.min\n"
        "0,a_0,0,2.828427,1.0,2.396791,-1.566224\n"
        "0,a_1,0,2.828427,1.0,,-1.566224\n"
    )
    assert (tmp_path / "actv_grad_0-1.csv").read_text() == (
        "vpp_stage,module_name,step,input_grad.norm,input_grad.min,output_grad.norm,output_grad.min\n"
        "0,a_0,0,,,0.877053,-0.482342\n"
    )


def test_of_several_tensors_of_a_side_the_first_is_reported(writer: SeriesWriter, tmp_path: Path) -> None:
    rows = [
        Row("actv", 0, f"lstm{call}.{side}_{place}", 3, 0, (float(place), 0.0))
        for call in ("", "[1]")
        for side in ("input", "output")
        for place in (0, 1)
    ]
    writer.add(rows)
    assert (tmp_path / "actv_2-3.csv").read_text().splitlines()[1:] == [
        "0,lstm_0,3,0.0,0.0,0.0,0.0",
        "0,lstm[1]_0,3,0.0,0.0,0.0,0.0",
    ]


def test_lines_of_parameters_have_their_names_and_those_of_their_values_no_stage(
    writer: SeriesWriter, tmp_path: Path
) -> None:
    tasks = ("grad_reduced", "exp_avg", "param_origin", "param_updated")
    writer.add([Row(task, 0, "a.weight", 0, None, (4.5274163, -1.832275)) for task in tasks])
    with_stage = "vpp_stage,param_name,step,norm,min\n0,a.weight,0,4.527416,-1.832275\n"
    without = "param_name,step,norm,min\na.weight,0,4.527416,-1.832275\n"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "grad_reduced_0-1.csv": with_stage,
        "exp_avg_0-1.csv": with_stage,
        "param_0-1.csv": without,
        "param_updated_0-1.csv": without,
    }


def keys(folder: Path) -> set[tuple[str, str]]:
    return {(key.task, key.name) for key in open_run(folder).keys}


def test_a_side_without_gradients_is_no_series_and_nan_is_one(writer: SeriesWriter, tmp_path: Path) -> None:
    nan = (math.nan, math.nan)
    writer.add(
        [
            Row("actv_grad", 0, "first.output", 0, 0, (1.0, 1.0)),
            Row("actv_grad", 0, "second.output", 0, 0, nan),
            Row("actv_grad", 0, "second.input", 0, 0, nan),
            Row("actv", 0, "second.input", 0, 0, (1.0, 1.0)),
            Row("actv", 0, "second.output", 0, 0, nan),
        ]
    )
    assert keys(tmp_path) == {
        ("actv_grad", "first_0.output"),
        ("actv_grad", "second_0.output"),
        ("actv_grad", "second_0.input"),
        ("actv", "second_0.input"),
        ("actv", "second_0.output"),
    }


def test_where_nan_is_counted_a_side_without_numbers_is_no_series(tmp_path: Path) -> None:
    writer = open_writer("mindspore-csv", tmp_path, ("norm", "nans"), ndigits=6, steps_per_file=1)
    writer.add([Row("actv", 0, "a.output", 0, 0, (math.nan, 3.0)), Row("actv", 0, "b.input", 0, 0, (1.0, 0.0))])
    assert keys(tmp_path) == {("actv", "a_0.output"), ("actv", "b_0.input")}


def test_what_is_written_is_read_again(writer: SeriesWriter, tmp_path: Path) -> None:
    writer.add([Row("actv", 0, "a.output", step, 0, (float(step), 1.0)) for step in range(4)])
    run = open_run(tmp_path)
    (key,) = [key for key in run.keys if (key.name, key.statistic) == ("a_0.output", "norm")]
    assert run.read(key).values.tolist() == [0.0, 1.0, 2.0, 3.0]
