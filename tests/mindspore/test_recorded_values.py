"""Values of tensors as a recording of MindSpore tells them: all are computed again by numpy."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint  # noqa: E402

from tests.mindspore.recordings import recorded, tensor  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


@pytest.mark.parametrize("name", ["Float32", "Float16", "Float64", "Int32", "Int64", "UInt8"])
def test_statistics_are_those_that_numpy_computes(tmp_path: Path, name: str) -> None:
    values = (np.random.default_rng(1).uniform(0, 50, size=(5, 7))).astype(name.lower())
    (entry,) = recorded(tmp_path, lambda: mint.reshape(Tensor(values), (35,)))["Mint.reshape.0.forward"]["input_args"][
        :1
    ]
    wide = values.astype(np.float64)
    assert (entry["Max"], entry["Min"]) == (values.max(), values.min())
    assert entry["Mean"] == pytest.approx(wide.mean(), rel=1e-6)
    assert entry["Norm"] == pytest.approx(np.sqrt((wide * wide).sum()), rel=1e-6)
    assert (entry["type"], entry["dtype"], entry["shape"]) == ("mindspore.Tensor", name, [5, 7])


def test_bool_and_bfloat16_are_described(tmp_path: Path) -> None:
    x = Tensor(np.array([[True, False]]))
    half = Tensor(np.array([1.5, -2.5], dtype=np.float32)).astype(ms.bfloat16)

    def program() -> None:
        mint.reshape(x, (2,))
        mint.reshape(half, (1, 2))

    data = recorded(tmp_path, program)
    mask, number = (data[f"Mint.reshape.{place}.forward"]["input_args"][0] for place in (0, 1))
    assert (mask["dtype"], mask["Max"], mask["Min"], mask["Mean"]) == ("Bool", True, False, None)
    assert (number["dtype"], number["Max"], number["Min"]) == ("BFloat16", 1.5, -2.5)


def test_extrema_without_inf_and_nan_stand_next_to_those_with(tmp_path: Path) -> None:
    values = np.array([1.0, np.inf, -3.0, np.nan], dtype=np.float32)
    entry = recorded(tmp_path, lambda: mint.reshape(Tensor(values), (2, 2)))["Mint.reshape.0.forward"]["input_args"][0]
    assert (entry["Max_except_inf_nan"], entry["Min_except_inf_nan"]) == (1.0, -3.0)


def test_checksums_are_those_of_the_bytes(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    data = recorded(tmp_path, lambda: mint.reshape(Tensor(values), (2, 3)), summary_mode="md5")
    assert data["Mint.reshape.0.forward"]["input_args"][0]["md5"] == f"{zlib.crc32(values.tobytes()):08x}"


def test_tensors_are_written_as_npy_files(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    data = recorded(tmp_path, lambda: mint.square(Tensor(values)), task="tensor")
    body = data["Mint.square.0.forward"]
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    assert body["output"][0]["data_name"] == "Mint.square.0.forward.output.0.npy"
    np.testing.assert_array_equal(np.load(folder / body["input_args"][0]["data_name"]), values)
    np.testing.assert_array_equal(np.load(folder / body["output"][0]["data_name"]), values * values)


def test_gradients_are_those_of_this_call_alone(tmp_path: Path) -> None:
    x, y = tensor(3, 4), tensor(4, 2, seed=1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        # Both inputs are used elsewhere too; what comes from there is not this call's.
        return mint.sum(mint.matmul(x, y)) + mint.sum(x) * 3.0 + mint.sum(y) * 5.0

    gradient = ms.grad(loss, (0, 1))
    data = recorded(tmp_path, lambda: gradient(x, y), task="tensor")
    body = data["Mint.matmul.0.backward"]
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    arriving, of_x, of_y = (np.load(folder / entry["data_name"]) for entry in [*body["input"], *body["output"]])
    np.testing.assert_array_equal(arriving, np.ones((3, 2), np.float32))
    np.testing.assert_allclose(of_x, arriving @ y.asnumpy().T, rtol=1e-6)
    np.testing.assert_allclose(of_y, x.asnumpy().T @ arriving, rtol=1e-6)


def test_a_tensor_says_how_it_lay_in_memory_where_that_is_not_contiguous(tmp_path: Path) -> None:
    x = tensor(2, 3, 4)

    def program() -> None:
        mint.exp(x)
        mint.exp(mint.transpose(x, 1, 2))
        mint.exp(mint.chunk(x, 2, -1)[1])
        mint.exp(mint.select(x, 0, 1))

    calls = recorded(tmp_path, program)
    keys = ("stride", "storage_offset", "storage_size", "storage")
    entries = [calls[f"Mint.exp.{number}.forward"]["input_args"][0] for number in range(4)]
    found = [{key: entry[key] for key in keys if key in entry} for entry in entries]
    assert found[0] == {}
    assert found[1] == {"stride": [12, 1, 4]}
    assert found[2] == {"stride": [12, 4, 1], "storage_offset": 2}
    assert found[3] == {"storage_offset": 12}
