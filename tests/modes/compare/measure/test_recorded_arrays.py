"""Tensors that torch saved, read without torch as torch reads them, or left to it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.names import plain_dtype
from pytest_msprobe.modes.compare.measure.recorded_arrays import BFLOAT16, as_floats, read_saved
from tests.support.dumps.dump_files import forward, tensor, write_dump
from tests.support.runs import run_pytest

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip
SHAPES = st.lists(st.one_of(st.integers(1, 5), st.sampled_from([255, 256, 300])), max_size=5).filter(
    lambda shape: np.prod(shape, dtype=int) < 200_000
)
#: Tensors that are more, or less, than all of their storage in its order, or no block of elements.
OTHERS: dict[str, Any] = {
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "a part of its storage": torch.arange(6.0)[:4],
    "the end of its storage": torch.arange(6.0)[2:],
    "expanded": torch.ones(1).expand(4),
    "a parameter": torch.nn.Parameter(torch.ones(2)),
    "complex": torch.ones(2, dtype=torch.complex64),
    "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
    "sparse": torch.eye(2).to_sparse(),
    "float8": torch.ones(2).to(torch.float8_e4m3fn),
    "a list": [torch.ones(2)],
    "a dict": {"x": torch.ones(2)},
}


@given(dtype=st.sampled_from(DTYPES), shape=SHAPES)
def test_what_is_read_is_what_torch_reads(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, shape: list[int]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.pt"
    torch.save(torch.randn(shape).mul(100).to(dtype), file)
    expected, found = torch.load(file, weights_only=True), read_saved(file)
    assert found is not None
    assert found.shape == tuple(expected.shape)
    if dtype is torch.bfloat16:
        assert found.dtype == BFLOAT16
        np.testing.assert_array_equal(as_floats(found, np.float32), expected.float().numpy())
    else:
        assert found.dtype.name == plain_dtype(str(dtype))
        np.testing.assert_array_equal(found, expected.numpy())


def test_a_large_tensor_is_read_with_all_of_its_elements(tmp_path: Path) -> None:
    values = torch.randn(1000, 700)
    torch.save(values, tmp_path / "large.pt")
    found = read_saved(tmp_path / "large.pt")
    assert found is not None
    np.testing.assert_array_equal(found, values.numpy())


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore")
def test_all_but_plain_tensors_are_left_to_torch(name: str, tmp_path: Path) -> None:
    torch.save(OTHERS[name], tmp_path / "x.pt")
    assert read_saved(tmp_path / "x.pt") is None


def test_elements_of_the_other_byte_order_are_left_to_torch(tmp_path: Path) -> None:
    written = io.BytesIO()
    torch.save(torch.ones(3), written)
    with zipfile.ZipFile(written) as archive, zipfile.ZipFile(tmp_path / "x.pt", "w") as other:
        for name in archive.namelist():
            other.writestr(name, b"big" if name.endswith("byteorder") else archive.read(name))
    assert read_saved(tmp_path / "x.pt") is None


@given(data=st.data())
def test_a_damaged_file_gives_no_other_elements(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    written, whole = io.BytesIO(), torch.arange(40.0).reshape(5, 8)
    torch.save(whole, written)
    content = bytearray(written.getvalue())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    file = tmp_path_factory.getbasetemp() / "damaged.pt"
    file.write_bytes(content)
    try:
        found = read_saved(file)
    except Exception:
        # As a comparison has it: torch says what is wrong.
        found = None
    # Damage to the elements shows in what torch reads, if it reads the rest; what neither needs may be damaged.
    if found is not None and not np.array_equal(found, whole.numpy()):
        np.testing.assert_array_equal(found, torch.load(file, weights_only=True).numpy())


CHILD = """
import sys

def pytest_unconfigure():
    print("torch is loaded:", "torch" in sys.modules)
"""


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_files_of_plain_tensors_are_compared_without_torch(
    pytester: pytest.Pytester, kind: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(1)
    golden = torch.randn(700, 60, generator=generator).to(dtype)
    values = {"golden": golden, "target": (golden * 1.25).clone()}
    values["target"][3, 7] += 64
    for side, of_side in values.items():
        _write(pytester.path / side, of_side, kind)
    pytester.makeconftest(CHILD)
    sides = ("--msprobe-compare", "target/dump.json", "--msprobe-golden", "golden/dump.json")
    result = run_pytest(pytester, *sides, "-s", apart=True)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*torch is loaded: False"])
    error = (values["target"].double() - golden.double()).abs()
    assert (error == error.max()).nonzero().tolist() == [[3, 7]]
    result.stdout.fnmatch_lines([f"*greatest absolute error {error.max().item():.6g}*"])


def _write(folder: Path, values: torch.Tensor, kind: str) -> None:
    name = "x.pt" if kind == "pt" else "0.safetensors::x"
    element = tensor(*values.shape, dtype=str(values.dtype).removeprefix("torch."), data_name=name)
    write_dump(folder, {"Torch.relu.0.forward": forward(element)}, task="tensor")
    data = folder / "dump_tensor_data"
    data.mkdir()
    if kind == "pt":
        torch.save(values, data / name)
    else:
        safetensors.torch.save_file({"x": values}, data / "0.safetensors")
