"""What a file of one or several tensors holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import save_file

from pytest_msprobe.extensions.show.tensor_differences import contents_of
from tests.support.dumps.dump_files import forward, tensor, write_dump

Show = Callable[..., tuple[int, str]]
Shown = Callable[..., Any]


@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=0), elements=st.floats(width=32)))
def test_statistics_are_those_of_numpy_for_the_finite_elements(array: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    found = contents_of(torch.from_numpy(array), 3)
    finite = array[np.isfinite(array)].astype(np.float64)
    assert (found.nan, found.inf, found.negative_inf) == (
        np.isnan(array).sum(),
        np.isposinf(array).sum(),
        np.isneginf(array).sum(),
    )
    assert found.zeros == (array == 0).sum()
    if not finite.size:
        assert (found.max, found.mean, found.histogram) == (None, None, None)
        return
    assert (found.max, found.min) == (finite.max(), finite.min())
    assert found.norm == pytest.approx(np.linalg.norm(finite.reshape(-1)))
    assert found.mean == pytest.approx(finite.mean(), abs=1e-6 * float(np.abs(finite).max()))


@given(st.lists(st.floats(-1e300, 1e300), min_size=21, max_size=60))
@example([0.0] * 20 + [5e-324])
@example([-1e308] + [0.0] * 20 + [1e308])
def test_a_histogram_counts_every_finite_element_in_its_bin(values: list[float]) -> None:
    found = contents_of(torch.tensor(values, dtype=torch.float64), 0).histogram
    assert found is not None
    assert sum(found.counts) == len(values)
    assert found.counts[0] >= 1
    assert found.greatest == found.least or found.counts[-1] >= 1


def test_a_histogram_is_numpys(tmp_path: Path, shown: Shown) -> None:
    values = np.random.default_rng(0).normal(size=20000).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    (found,) = shown(tmp_path / "x.npy")["tensors"]
    expected = np.histogram(values, 20)[0]
    # An element on the edge of two bins is in either.
    assert np.abs(np.array(found["contents"]["histogram"]["counts"]) - expected).max() <= 1


def test_integers_are_reported_exactly(tmp_path: Path, shown: Shown) -> None:
    np.save(tmp_path / "x.npy", np.array([2**63 - 1, -(2**63), 5]))
    (found,) = shown(tmp_path / "x.npy")["tensors"]
    assert (found["contents"]["max"], found["contents"]["min"]) == (2**63 - 1, -(2**63))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "complex64", "bool", "uint8"])
def test_every_dtype_of_torch_is_reported(tmp_path: Path, shown: Shown, dtype: str) -> None:
    torch.save(torch.tensor([0.0, 1.0, 1.0]).to(getattr(torch, dtype)), tmp_path / "x.pt")
    (found,) = shown(tmp_path / "x.pt")["tensors"]
    assert (found["dtype"], found["shape"]) == (dtype, [3])
    assert found["contents"]["norm"] == pytest.approx(math.sqrt(2))
    assert found["contents"]["zeros"] == 1


def test_values_in_other_byte_orders_and_by_columns_are_read(tmp_path: Path, shown: Shown) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)))
    (found,) = shown(tmp_path / "x.npy")["tensors"]
    assert found["contents"]["first"] == ["0", "1", "2", "3", "4", "5"]


def test_the_tensors_of_a_checkpoint_have_dotted_names_and_one_is_chosen(tmp_path: Path, show: Show) -> None:
    torch.save({"model": {"w": torch.ones(2)}, "layers": [torch.zeros(3)], "lr": 0.1}, tmp_path / "c.pt")
    _, text = show(tmp_path / "c.pt")
    assert "c.pt model.w: float32 [2]" in text
    assert "c.pt layers.0: float32 [3]" in text
    assert "c.pt lr: 0.1" in text
    assert "layers" not in show(f"{tmp_path}/c.pt::model.w")[1]


def test_many_tensors_are_a_table(tmp_path: Path, show: Show) -> None:
    save_file({f"w{i}": torch.full((2,), float(i)) for i in range(9)}, tmp_path / "m.safetensors")
    _, text = show(tmp_path / "m.safetensors")
    (row,) = (line for line in text.splitlines() if line.startswith("w7"))
    assert row.split() == ["w7", "float32", "[2]", "7", "7", "7", "9.89949494"]


def test_a_record_is_reported_by_its_values(tmp_path: Path, show: Show) -> None:
    (tmp_path / "dump_tensor_data").mkdir()
    np.save(tmp_path / "dump_tensor_data" / "x.npy", np.arange(4, dtype=np.float32))
    record = forward(tensor(4, data_name="x.npy"), output=[tensor(2, low=-3.0)])
    dump = write_dump(tmp_path, {"Torch.exp.0.forward": record}, task="tensor")
    _, text = show(f"{dump}::Torch.exp.0.forward")
    assert "first: 0 1 2 3" in text
    assert "min -3" in text
    assert "as recorded" in text


def test_a_missing_record_is_reported_with_those_that_there_are(tmp_path: Path, show: Show) -> None:
    dump = write_dump(tmp_path, {"Torch.exp.0.forward": forward(tensor(2))})
    status, text = show(f"{dump}::Torch.log.0.forward")
    assert status == 2
    assert "no record 'Torch.log.0.forward'" in text
    assert "Torch.exp.0.forward" in text


def test_a_record_whose_file_is_missing_says_so(tmp_path: Path, show: Show) -> None:
    dump = write_dump(tmp_path, {"Torch.exp.0.forward": forward(tensor(2, data_name="gone.npy"))}, task="tensor")
    status, text = show(f"{dump}::Torch.exp.0.forward")
    assert status == 0
    assert "gone.npy" in text


def test_no_name_moves_the_terminals_cursor(tmp_path: Path, show: Show) -> None:
    torch.save({"\x1b[2J": torch.ones(1)}, tmp_path / "x.pt")
    assert "\x1b" not in show(tmp_path / "x.pt")[1]
