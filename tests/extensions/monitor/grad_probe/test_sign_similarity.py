"""Sign maps of two runs, compared: runs are written here by hand, in msprobe's layout."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import sign_similarity

Signs = Mapping[str, Any]


def write_step(rank: Path, step: int, signs: Signs, *, packed: bool = False) -> None:
    folder = rank / f"step{step}"
    folder.mkdir(parents=True)
    with (rank / f"grad_summary_{step}.csv").open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["param_name", "max", "min", "norm", "shape"])
        rows.writerows([name, 1.0, -1.0, 1.0, list(np.shape(map_))] for name, map_ in signs.items())
    for name, map_ in signs.items():
        array = np.asarray(map_, dtype=bool)
        np.save(folder / name.replace("/", "%2F"), sign_maps.packed(array) if packed else array)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of two steps: half of one weight's signs differ at step 0, one element of four at step 1."""
    a, b = tmp_path / "a", tmp_path / "b"
    write_step(a, 0, {"fc.weight": [[1, 0], [1, 1]], "fc.bias": [1, 0]})
    write_step(b, 0, {"fc.weight": [[0, 1], [1, 1]], "fc.bias": [1, 0]})
    write_step(a, 1, {"fc.weight": [[1, 0], [1, 1]], "fc.bias": [1, 0]})
    write_step(b, 1, {"fc.weight": [[1, 0], [1, 0]], "fc.bias": [1, 0]})
    return a, b


def test_the_similarity_is_the_share_of_elements_with_equal_signs(runs: tuple[Path, Path]) -> None:
    found = sign_similarity(*runs)
    assert (found.steps, found.parameters) == ((0, 1), ("fc.weight", "fc.bias"))
    assert found.shares.tolist() == [[2 / 4, 3 / 4], [1.0, 1.0]]


def test_the_summary_weighs_parameters_by_their_elements(runs: tuple[Path, Path]) -> None:
    assert sign_similarity(*runs).summary.tolist() == [4 / 6, 5 / 6]


def test_steps_of_one_run_alone_are_left_out_and_said_to_be(
    runs: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    write_step(runs[1], 2, {"fc.weight": [[1, 0], [1, 0]], "fc.bias": [1, 0]})
    assert sign_similarity(*runs).steps == (0, 1)
    assert "1 step left out, as in only one of" in caplog.text


def test_a_step_that_was_cut_off_before_its_summary_is_left_out(
    runs: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    (runs[0] / "grad_summary_1.csv").unlink()
    assert sign_similarity(*runs).steps == (0,)
    assert "left out, as they have no summary" in caplog.text


def test_where_neither_run_had_a_gradient_there_is_no_number(tmp_path: Path) -> None:
    for run in ("a", "b"):
        write_step(tmp_path / run, 0, {"w": [1]})
        write_step(tmp_path / run, 1, {"w": [1], "expert": [0, 1]})
    found = sign_similarity(tmp_path / "a", tmp_path / "b")
    assert math.isnan(found.shares[1, 0])
    assert found.shares[1, 1] == 1.0


def test_a_gradient_without_elements_is_0_alike(tmp_path: Path) -> None:
    for run in ("a", "b"):
        write_step(tmp_path / run, 0, {"w": np.zeros((0, 3)), "v": [1]})
    found = sign_similarity(tmp_path / "a", tmp_path / "b")
    assert (found.shares.tolist(), found.summary.tolist()) == ([[0.0], [1.0]], [1.0])


@given(map_=arrays.arrays(bool, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9)))
def test_a_packed_map_is_read_as_what_was_packed(tmp_path_factory: pytest.TempPathFactory, map_: Any) -> None:
    path = tmp_path_factory.mktemp("map") / "w.npy"
    np.save(path, sign_maps.packed(map_), allow_pickle=False)
    found = sign_maps.read(path)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, map_)


def test_a_packed_run_is_compared_with_one_of_bools(tmp_path: Path) -> None:
    write_step(tmp_path / "a", 0, {"w": np.ones((3, 7))}, packed=True)
    write_step(tmp_path / "b", 0, {"w": np.eye(3, 7)})
    assert sign_similarity(tmp_path / "a", tmp_path / "b").shares.tolist() == [[3 / 21]]


def test_a_packed_map_takes_an_eighth(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", sign_maps.packed(np.ones((64, 1024), dtype=bool)))
    assert (tmp_path / "w.npy").stat().st_size < 64 * 1024 / 8 + 256


@given(name=st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_parameters_name_leaves_the_folder(name: str) -> None:
    folder = Path("/run/step0")
    assert (folder / sign_maps.file_name(name)).parent == folder


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda b: (b / "step1" / "fc.bias.npy").unlink(), "fc.bias.npy: not a readable sign map"),
        (lambda b: np.save(b / "step1" / "fc.bias.npy", np.ones(2)), "holds float64, not a sign map"),
        (lambda b: np.save(b / "step1" / "fc.bias.npy", np.array([{}])), "fc.bias.npy: .*allow_pickle=False"),
        (lambda b: np.save(b / "step1" / "fc.bias.npy", np.ones(3, bool)), r"fc.bias at step 1: shape \(2,\) .*\(3,\)"),
        (lambda b: (b / "step1" / "fc.bias.npy").write_bytes(b"\x93NUMPY\x01"), "fc.bias.npy: not a readable sign map"),
        (lambda b: (b / "grad_summary_1.csv").write_bytes(b"\xff\xfe"), r"grad_summary_1.csv: cannot be read"),
        (lambda b: (b / "grad_summary_1.csv").write_text("name,max\r\n"), "begins with 'name'"),
        (lambda b: (b / "grad_summary_1.csv").write_text("param_name\r\nfc.bias\r\n"), "has no gradient of fc.weight"),
        (lambda b: (b / "grad_summary_1.csv").write_text(""), "begins with nothing"),
    ],
    ids=["missing", "floats", "objects", "shape", "cut", "no text", "column", "partner", "empty"],
)
def test_what_cannot_be_compared_is_named(runs: tuple[Path, Path], change: Any, text: str) -> None:
    change(runs[1])
    with pytest.raises(MonitorError, match=text):
        sign_similarity(*runs)


@pytest.mark.parametrize(
    ("shape", "bits"), [((3,), 2), ((-1,), 0), ((1 << 40, 1 << 40), 1)], ids=["too many", "negative", "enormous"]
)
def test_a_packed_map_that_contradicts_itself_is_named(tmp_path: Path, shape: tuple[int, ...], bits: int) -> None:
    record = np.zeros((), dtype=[("shape", "<i8", (len(shape),)), ("bits", "u1", (bits,))])
    record["shape"] = shape
    np.save(tmp_path / "w.npy", record)
    with pytest.raises(MonitorError, match=r"w\.npy: its shape does not match its bits"):
        sign_maps.read(tmp_path / "w.npy")


def test_runs_without_a_common_step_say_which_they_have(tmp_path: Path) -> None:
    write_step(tmp_path / "a", 0, {"w": [1]})
    write_step(tmp_path / "b", 3, {"w": [1]})
    with pytest.raises(MonitorError, match=r"no step is in both runs.*a has 1 step from 0 to 0; .*from 3 to 3"):
        sign_similarity(tmp_path / "a", tmp_path / "b")


def test_a_folder_of_something_else_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(MonitorError, match=r"holds no grad_summary_<step>.csv; pass the folder rank<N>"):
        sign_similarity(tmp_path, tmp_path)
    write_step(tmp_path / "rank0", 0, {"w": [1]})
    with pytest.raises(MonitorError, match=r"pass the folder of a rank, such as .*rank0"):
        sign_similarity(tmp_path, tmp_path)


def test_a_run_without_sign_maps_says_which_level_has_them(tmp_path: Path) -> None:
    (tmp_path / "grad_summary_0.csv").write_text("param_name\r\n")
    with pytest.raises(MonitorError, match="record it with grad_level L1 or L2"):
        sign_similarity(tmp_path, tmp_path)
