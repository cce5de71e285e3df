from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series import blocks, writer
from msprobe_hooks.extensions.monitor.series.reader import open_run
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from tests.support.requirements import require

require(find_spec("pyarrow"), "pyarrow")


def row(step: int, *values: float, name: str = "layer.weight", micro_step=None) -> Row:
    return Row("grad_reduced", 0, name, step, micro_step, values)


@pytest.fixture
def write(tmp_path):
    def written(*rows: Row, statistics=("norm",), steps_per_file: int = 10) -> Path:
        writer = open_writer("parquet", tmp_path, statistics, ndigits=6, steps_per_file=steps_per_file)
        writer.add(rows)
        writer.close()
        return tmp_path

    return written


def series(folder: Path) -> dict[tuple[str, int | None], list[tuple[int, float]]]:
    run = open_run(folder)
    found = {(key.name, key.micro_step): run.read(key) for key in run.keys}
    return {key: list(zip(each.steps.tolist(), each.values.tolist(), strict=True)) for key, each in found.items()}


def test_a_part_holds_the_steps_of_its_name_and_a_window_ends_one(write):
    folder = write(*(row(step, 0.0) for step in range(3, 12)), steps_per_file=10)
    assert {path.name for path in folder.iterdir()} == {"grad_reduced_3-9.parquet", "grad_reduced_10-11.parquet"}


def test_each_flush_makes_a_part_of_its_own_and_none_is_overwritten(tmp_path):
    for _ in range(2):
        writer = open_writer("parquet", tmp_path, ["norm"], ndigits=6, steps_per_file=10)
        writer.add([row(1, 1.0)])
        writer.flush()
    assert {path.name for path in tmp_path.iterdir()} == {"grad_reduced_1-1.parquet", "grad_reduced_1-1.1.parquet"}


def test_of_a_step_written_twice_the_last_holds_and_a_note_says_so(write):
    write(row(4, 1.0), row(5, 1.0))
    folder = write(row(5, 2.0), row(6, 2.0))
    assert series(folder) == {("layer.weight", None): [(4, 1.0), (5, 2.0), (6, 2.0)]}
    assert open_run(folder).notes == ["grad_reduced: step 5 was written more than once; the last values are used"]


def test_a_part_that_was_cut_off_is_left_out_and_named(write):
    folder = write(row(0, 1.0), row(10, 2.0))
    part = folder / "grad_reduced_10-10.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    assert series(folder) == {("layer.weight", None): [(0, 1.0)]}
    (note,) = open_run(folder).notes
    assert note == "grad_reduced_10-10.parquet: it is cut off before its footer ends and is left out"


def test_a_damaged_part_is_named(write):
    part = write(*(row(step, step / 7) for step in range(10))) / "grad_reduced_0-9.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 4] ^= 0xFF
    part.write_bytes(data)
    with pytest.raises(MonitorError, match=r"grad_reduced_0-9\.parquet: its data are damaged"):
        series(part.parent)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"loss": [0.5], "step": [1]}, "has no column vpp_stage"),
        (
            {"vpp_stage": [0], "name": ["a"], "step": [1]},
            "its column 'vpp_stage' is of int64, not of int32 as in a monitored run",
        ),
    ],
)
def test_a_part_of_another_tool_is_named_with_its_column(tmp_path, columns, problem):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "actv_0-9.parquet")
    with pytest.raises(MonitorError, match=rf"actv_0-9\.parquet: {problem}"):
        open_run(tmp_path)


def test_a_missing_pyarrow_is_one_error_that_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MonitorError, match=r"pytest-msprobe\[parquet\]"):
        open_writer("parquet", tmp_path, ["norm"], ndigits=6, steps_per_file=1)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.integers(0, 3), st.integers(0, 50)),
        min_size=1,
        unique=True,
    ),
    st.data(),
    st.integers(10, 50),
)
def test_what_is_written_is_what_is_read_to_the_last_bit(tmp_path_factory, places, data, steps_per_file):
    folder = tmp_path_factory.mktemp("run")
    values = data.draw(st.lists(st.floats(), min_size=len(places), max_size=len(places)))
    writer = open_writer("parquet", folder, ["max"], ndigits=1, steps_per_file=steps_per_file)
    writer.add(
        row(step, value, name=name, micro_step=micro) for (name, micro, step), value in zip(places, values, strict=True)
    )
    writer.close()
    found = {key: dict(each) for key, each in series(folder).items()}
    for (name, micro, step), value in zip(places, values, strict=True):
        read = found[name, micro][step]
        assert math.isnan(read) if math.isnan(value) else read.hex() == value.hex()


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=4), st.integers(1, 40))
def test_however_often_and_in_whatever_order_steps_are_written_the_last_holds(
    tmp_path_factory, flushes, steps_per_file
):
    folder = tmp_path_factory.mktemp("run")
    expected: dict[int, float] = {}
    values = count(0.5)
    for steps in flushes:
        writer = open_writer("parquet", folder, ["max"], ndigits=1, steps_per_file=steps_per_file)
        for step in steps:
            expected[step] = next(values)
            writer.add([row(step, expected[step])])
        writer.close()
    assert series(folder) == {("layer.weight", None): sorted(expected.items())}


def test_series_are_the_same_however_many_are_read_at_once(write, monkeypatch):
    monkeypatch.setattr(writer, "_ROWS_PER_GROUP", 7)
    drawn = np.random.default_rng(0).normal(size=(20, 5, 2))
    folder = write(
        *(row(step, *drawn[step, i].tolist(), name=f"layer{i}") for step in range(20) for i in range(5)),
        statistics=("min", "max"),
    )
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 20 * 3 * 8 * 2)
    run = open_run(folder)
    assert [(key.name, key.statistic) for key in run.keys[:3]] == [
        ("layer0", "min"),
        ("layer0", "max"),
        ("layer1", "min"),
    ]
    for key in [*run.keys, run.keys[0]]:
        found = run.read(key)
        assert found.values.tolist() == drawn[:, int(key.name[-1]), ("min", "max").index(key.statistic)].tolist()
        assert found.steps.tolist() == [*range(20)]
