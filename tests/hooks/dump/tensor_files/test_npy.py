"""Headers of ``.npy`` files, read as numpy reads them."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy
from numpy.typing import NDArray

from msprobe_hooks.dump.npy import header_of, read_array

DTYPES = ("<f4", ">f8", "<f2", "|i1", "<u8", "|b1", "<c16", ">i2")


@given(dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 4), max_size=4), fortran=st.booleans())
def test_what_is_read_is_what_numpy_wrote(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], fortran: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.npy"
    array: NDArray[Any] = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    np.save(file, np.asarray(array, order="F" if fortran else "C"))
    found = read_array(file)
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(found, np.load(file))


def test_a_large_array_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "large.npy", np.arange(2**18))
    flat = read_array(tmp_path / "large.npy").base
    assert isinstance(getattr(flat, "base", None), memoryview | mmap.mmap)


def test_headers_of_later_versions_and_with_fields_are_read_too(tmp_path: Path) -> None:
    with (tmp_path / "later.npy").open("wb") as file:
        npy.write_array(file, np.ones((2, 3)), version=(2, 0))
    np.save(tmp_path / "fields.npy", np.zeros(2, dtype=[("a", "<f4")]))
    assert header_of(tmp_path / "later.npy").shape == (2, 3)
    assert header_of(tmp_path / "fields.npy").dtype.names == ("a",)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickled"):
        read_array(tmp_path / "objects.npy")


@pytest.mark.parametrize("kept", [0, 5, 40, 127, 130])
def test_a_file_that_was_cut_off_is_named_so(tmp_path: Path, kept: int) -> None:
    whole = io.BytesIO()
    np.save(whole, np.ones(4))
    (tmp_path / "cut.npy").write_bytes(whole.getvalue()[:kept])
    with pytest.raises(ValueError):
        header_of(tmp_path / "cut.npy")


@pytest.mark.parametrize(
    ("dtype", "shape"), [("<f3", "(1,)"), ("<f4", "(-1,)"), ("<f4", "(True,)"), ("<f4", "(0, 1000000000000000000000)")]
)
def test_a_header_of_no_array_is_no_header(tmp_path: Path, dtype: str, shape: str) -> None:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    (tmp_path / "odd.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(ValueError, match="its header"):
        header_of(tmp_path / "odd.npy")


def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999, 99999), }\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(ValueError, match="it holds 64 of"):
        read_array(tmp_path / "huge.npy")
