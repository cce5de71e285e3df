from __future__ import annotations

import csv
import io
import math
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.errors import ConfigError, MonitorError
from msprobe_hooks.extensions.monitor.series import blocks, csv_files
from msprobe_hooks.extensions.monitor.series.reader import open_run
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)


def row(step: int, *values: float, name: str = "layer.weight", task: str = "grad_reduced", micro_step=None) -> Row:
    return Row(task, 0, name, step, micro_step, values)


@pytest.fixture
def write(tmp_path):
    def written(*rows: Row, statistics=("norm",), ndigits: int = 6, steps_per_file: int = 10) -> Path:
        writer = open_writer("csv", tmp_path, statistics, ndigits=ndigits, steps_per_file=steps_per_file)
        writer.add(rows)
        writer.close()
        return tmp_path

    return written


def series(folder: Path) -> dict[tuple[str, str], list[tuple[int, float]]]:
    run = open_run(folder)
    found = {(key.name, key.statistic): run.read(key) for key in run.keys}
    return {key: list(zip(each.steps.tolist(), each.values.tolist(), strict=True)) for key, each in found.items()}


def test_the_header_and_the_numbers_are_msprobes(write):
    folder = write(
        row(2, math.nan, -5.2864891, 3, name="0.weight"), row(2, 8.9e-05, 1e20, 0.0), statistics=("norm", "min", "nans")
    )
    assert (folder / "grad_reduced_0-9.csv").read_text() == (
        "vpp_stage,name,step,norm,min,nans\n0,0.weight,2,nan,-5.286489,3\n0,layer.weight,2,8.9e-05,1e+20,0.0\n"
    )


def test_activations_have_a_column_for_the_micro_step(write):
    folder = write(row(1, 0.5, task="actv", name=".input", micro_step=3))
    assert (folder / "actv_0-9.csv").read_text() == "vpp_stage,name,step,micro_step,norm\n0,.input,1,3,0.5\n"


def test_steps_go_into_the_file_of_their_window(write):
    folder = write(row(0, 1.0), row(1, 1.0), row(2, 1.0), steps_per_file=2)
    assert sorted(path.name for path in folder.iterdir()) == ["grad_reduced_0-1.csv", "grad_reduced_2-3.csv"]


def test_a_run_goes_on_in_its_files(write):
    write(row(0, 1.0))
    assert series(write(row(1, 2.0))) == {("layer.weight", "norm"): [(0, 1.0), (1, 2.0)]}


def test_a_line_that_was_cut_off_costs_no_other_when_a_run_goes_on(write):
    file = write(row(0, 1.0), row(1, 2.0)) / "grad_reduced_0-9.csv"
    file.write_bytes(file.read_bytes()[:-2])
    assert series(write(row(1, 3.0))) == {("layer.weight", "norm"): [(0, 1.0), (1, 3.0)]}


def test_a_line_whose_writing_failed_costs_no_other(tmp_path):
    writer = open_writer("csv", tmp_path, ["norm"], ndigits=6, steps_per_file=10)
    writer.add([row(0, 1.0)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    disposition = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "grad_reduced_0-9.csv").stat().st_size + 5, limits[1]))
        with pytest.raises(MonitorError, match=r"grad_reduced_0-9\.csv: cannot be written: File too large"):
            writer.add([row(1, 2.0)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, disposition)
    writer.add([row(2, 3.0)])
    assert series(tmp_path) == {("layer.weight", "norm"): [(0, 1.0), (2, 3.0)]}


def test_a_name_is_quoted_as_csv_asks_for(write):
    name = 'a,"b"\rc'
    text = (write(row(1, 0.5, name=name)) / "grad_reduced_0-9.csv").read_bytes().decode()
    assert list(csv.reader(io.StringIO(text, newline="")))[1] == ["0", name, "1", "0.5"]


def test_a_file_with_other_columns_is_not_appended_to(write):
    write(row(0, 1.0))
    with pytest.raises(MonitorError, match=r"grad_reduced_0-9\.csv: its columns are .*choose another folder"):
        write(row(1, 1.0, 2.0), statistics=("norm", "max"))


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(NAMES, st.integers(0, 1000), st.floats(allow_subnormal=False)),
        min_size=1,
        unique_by=lambda drawn: drawn[:2],
    ),
    st.integers(1, 20),
    st.integers(1, 100),
)
def test_what_is_written_is_what_is_read(tmp_path_factory, drawn, ndigits, steps_per_file):
    folder = tmp_path_factory.mktemp("run")
    writer = open_writer("csv", folder, ["max"], ndigits=ndigits, steps_per_file=steps_per_file)
    for name, step, value in drawn:
        writer.add([row(step, value, name=name)])
        writer.flush()
    found = series(folder)
    for name, step, value in drawn:
        read = dict(found[name, "max"])[step]
        assert math.isnan(read) if math.isnan(value) else read == round(value, ndigits)


def test_an_unknown_format_names_those_there_are(tmp_path):
    with pytest.raises(ConfigError, match="format is 'xml'; allowed: csv"):
        open_writer("xml", tmp_path, ["norm"], ndigits=6, steps_per_file=1)


def test_around_the_wanted_tensors_few_lines_of_a_file_are_read(write, monkeypatch):
    tensors, steps = 256, 4
    folder = write(*(row(step, step + i / 256, name=f"layer{i}") for step in range(steps) for i in range(tensors)))
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 32 * steps * 2 * 8)
    run = open_run(folder)
    lines: list[str] = []
    cells = csv_files._cells
    monkeypatch.setattr(csv_files, "_cells", lambda line: lines.append(line) or cells(line))
    for key in run.keys:
        start = int(key.name.removeprefix("layer")) / 256
        assert run.read(key).values.tolist() == [pytest.approx(step + start, abs=1e-6) for step in range(steps)]
    # Each of eight blocks of tensors would go through all lines otherwise.
    assert len(lines) < 3 * tensors * steps
