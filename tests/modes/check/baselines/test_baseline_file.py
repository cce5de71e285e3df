from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.baseline_file import BaselineWriter, Header, read_baseline
from pytest_msprobe.modes.check.baselines.tensor_folder import OutputRow, RecordRow
from pytest_msprobe.results.result import Start

HEADER = Header(
    written_by="0.1.0",
    dumps={"abc": "dump.json"},
    seed=0,
    real_data="auto",
    policy="default",
    starts=[Start("cuda:0", "a card, torch 2.13.0", {"TF32 matmul": "on"})],
)


def row(record: str, **metrics: float) -> RecordRow:
    output = OutputRow("output.0", "pass", "benchmark", "", "torch.float32", "torch.float64", (2, 3), metrics)
    return RecordRow(record, "abc", "pass", outputs=(output,))


def write(path: Path, *rows: RecordRow) -> Path:
    writer = BaselineWriter(path)
    for one in rows:
        writer.add(one)
    writer.finish(HEADER)
    return path


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@given(names=st.lists(TEXTS, unique=True, max_size=5), value=st.floats(allow_nan=False))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, names: list[str], value: float) -> None:
    rows = [row(name, max_abs_err=value) for name in names]
    baseline = read_baseline(write(tmp_path_factory.mktemp("baseline") / "gpu.json", *rows))
    assert baseline.header == HEADER
    assert [baseline.row("abc", name) for name in names] == rows


def test_nan_is_read_back_as_nan(tmp_path: Path) -> None:
    baseline = read_baseline(write(tmp_path / "gpu.json", row("a", max_abs_err=math.nan)))
    assert math.isnan(baseline.row("abc", "a").outputs[0].metrics["max_abs_err"])


def test_a_record_without_a_row_has_no_outputs(tmp_path: Path) -> None:
    baseline = read_baseline(write(tmp_path / "gpu.json", row("a", max_abs_err=1)))
    assert baseline.row("abc", "b").outputs == ()
    assert baseline.row("other dump", "a").outputs == ()


def test_a_baseline_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "gpu.json", row("a", max_abs_err=1), row("b", max_abs_err=2))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BaselineError) as caught:
            read_baseline(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("line", [b'{"record": "\xb0"}', b'{"record": ' + b"[" * 5000, b"7"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path / "gpu.json", row("a"), row("b"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line + b"\n", *lines[2:]]))
    with pytest.raises(BaselineError, match="line 2 is damaged"):
        read_baseline(path)


def test_a_row_that_is_not_utf_8_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    path = write(tmp_path / "gpu.json", row("a"))
    path.write_bytes(path.read_bytes().replace(b'"path":"', b'"path":"\xb0'))
    with pytest.raises(BaselineError, match="the row of 'a' is damaged"):
        read_baseline(path).row("abc", "a")


def test_a_lost_line_in_the_middle_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "gpu.json", row("a"), row("b"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(BaselineError, match="is cut short"):
        read_baseline(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "neither a baseline nor msprobe's details table"),
        (b"\x80\x00PK\x03\x04", "neither a baseline nor msprobe's details table"),
        (b"hello\n", "neither a baseline nor msprobe's details table"),
        (b'{"msprobe_journal": 1}\n', "not a baseline"),
        (b'{"task": "statistics", "data": {}}', "not a baseline"),
        (b'{"msprobe_baseline": "1"}\n', "not a baseline"),
        (b'{"msprobe_baseline": 2}\n', "a newer version .format 2, this one reads 1.; update pytest-msprobe"),
        (b'{"msprobe_baseline": 0}\n', "an older version .format 0, this one reads 1.; record it again"),
        (b'{"msprobe_baseline": 1}\n', "line 1 is not a header of format 1"),
        (b'{"a":' * 100_000, "not a baseline"),
        (b'{"msprobe_baseline": 1, "written_by": "\xb0"}\n', "not a baseline"),
    ],
)
def test_a_foreign_file_is_refused_with_its_name(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "gpu.json"
    path.write_bytes(text)
    with pytest.raises(BaselineError, match=problem) as caught:
        read_baseline(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "output",
    [
        {"path": "output.0", "outcome": "pass", "shape": [-1]},
        {"path": "output.0", "outcome": "pass", "shape": [1] * 65},
        {"path": "output.0", "outcome": "pass", "shape": [1e99]},
        {"path": "output.0", "outcome": "pass", "metrics": {"tail_share": -1}},
        {"path": "output.0", "outcome": "pass", "metrics": {"rmse": "much"}},
        {"path": "output.0", "outcome": "pass", "metrics": [1]},
        {"outcome": "pass"},
        [[[[]]]],
    ],
)
def test_a_damaged_row_is_an_error_that_names_the_record(tmp_path: Path, output: object) -> None:
    path = write(tmp_path / "gpu.json", row("a"))
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({"record": "a", "dump": "abc", "outputs": [output]})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BaselineError, match="the row of 'a' is damaged"):
        read_baseline(path).row("abc", "a")


def test_a_new_baseline_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "gpu.json", row("old"))
    before = path.read_bytes()
    writer = BaselineWriter(path)
    writer.add(row("new"))
    assert path.read_bytes() == before
    writer.finish(HEADER)
    assert list(read_baseline(path).rows) == [("abc", "new")]
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.json"]


def test_a_disk_that_fills_up_at_the_end_leaves_the_old_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "gpu.json", row("old"))
    before = path.read_bytes()
    writer = BaselineWriter(path)
    writer.add(row("new"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BaselineError, match=r"gpu\.json: the baseline cannot be written: No space left on device"):
        writer.finish(HEADER)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.json"]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BaselineError, match="cannot be written"):
        BaselineWriter(tmp_path / "file" / "gpu.json")
