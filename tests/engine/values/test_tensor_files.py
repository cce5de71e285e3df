"""Real data are read from the dump's own folder, and only if they are plain tensors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.results.outcomes import Skip, SkipReason

VALUES = torch.arange(6.0).view(2, 3)


def load(folder: Path, name: str, dtype: str = "torch.float32", shape: tuple[int, ...] = (2, 3)) -> torch.Tensor:
    return load_tensor(TensorElement("torch.Tensor", dtype, shape, data_name=name), folder)


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        VALUES.bfloat16(),
        VALUES.to(torch.float8_e5m2),
        VALUES.to(torch.complex64),
        VALUES.bool(),
        VALUES.to(torch.uint16),
        VALUES.t().contiguous().t(),
        VALUES.clone().requires_grad_(),
        torch.nn.Parameter(VALUES.clone()),
    ],
    ids=lambda values: str(values.dtype),
)
def test_a_pt_file_gives_the_recorded_values(tmp_path: Path, values: torch.Tensor) -> None:
    torch.save(values, tmp_path / "x.pt")
    found = load(tmp_path, "x.pt", str(values.dtype))
    assert torch.equal(found.to(torch.complex128), values.detach().to(torch.complex128))
    assert found.is_contiguous()
    assert not found.requires_grad


def test_an_npy_file_gives_the_recorded_values(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES.numpy())
    assert torch.equal(load(tmp_path, "x.npy"), VALUES)
    # numpy arrays are recorded with numpy's names of the dtypes
    assert torch.equal(load(tmp_path, "x.npy", "float32"), VALUES)


def saved(path: Path, values: torch.Tensor) -> TensorElement:
    """Write values to a file and return the element of a dump that names it."""
    if path.suffix == ".npy":
        np.save(path, values.numpy())
    else:
        torch.save(values, path)
    return TensorElement("torch.Tensor", str(values.dtype), tuple(values.shape), data_name=path.name)


@pytest.mark.parametrize("name", ["x.pt", "x.npy"])
def test_a_small_file_may_change_once_it_was_asked_to_be_mapped(tmp_path: Path, name: str) -> None:
    element = saved(tmp_path / name, VALUES)
    found = load_tensor(element, tmp_path, mapped=True)
    (tmp_path / name).write_bytes(b"")
    assert torch.equal(found, VALUES)


@pytest.mark.parametrize("name", ["x.pt", "x.npy"])
def test_writing_to_what_is_mapped_leaves_the_file_as_it_is(tmp_path: Path, name: str) -> None:
    values = torch.arange(600_000.0)
    element = saved(tmp_path / name, values)
    load_tensor(element, tmp_path, mapped=True).zero_()
    assert torch.equal(load_tensor(element, tmp_path, mapped=True), values)


def test_a_missing_file_is_a_skip_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(Skip, match=r"gone\.pt") as caught:
        load(tmp_path, "gone.pt")
    assert caught.value.reason is SkipReason.MISSING_TENSOR_FILE


@pytest.mark.parametrize("name", ["../x.pt", "a/../../x.pt", "../dump_other/x.pt"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    torch.save(VALUES, tmp_path / "x.pt")
    (tmp_path / "dump").mkdir()
    with pytest.raises(DumpError, match="leads out"):
        load(tmp_path / "dump", name)


def test_an_absolute_path_is_refused(tmp_path: Path) -> None:
    torch.save(VALUES, tmp_path / "x.pt")
    (tmp_path / "dump").mkdir()
    with pytest.raises(DumpError, match="leads out"):
        load(tmp_path / "dump", str(tmp_path / "x.pt"))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    torch.save(VALUES, tmp_path / "x.pt")
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "x.pt").symlink_to(tmp_path / "x.pt")
    with pytest.raises(DumpError, match="leads out"):
        load(tmp_path / "dump", "x.pt")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.pt").symlink_to(tmp_path / "loop.pt")
    for name in ("loop.pt", "a\0b.pt", "x" * 300 + ".pt"):
        with pytest.raises((DumpError, Skip)) as caught:
            load(tmp_path, name)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["x.pkl", "x", "x.pt.sh", "x.npz"])
def test_other_kinds_of_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DumpError, match=r"\.pt or \.npy"):
        load(tmp_path, name)


class Attack:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('executed')",)


@pytest.mark.parametrize("suffix", ["pt", "npy"])
def test_pickled_code_is_not_run(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"raw.{suffix}").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(DumpError, match=f"raw.{suffix}"):
        load(tmp_path, f"raw.{suffix}")
    if suffix == "pt":
        torch.save(Attack(), tmp_path / "saved.pt")
    else:
        np.save(tmp_path / "saved.npy", np.array([Attack()], dtype=object), allow_pickle=True)
    with pytest.raises(DumpError, match=f"saved.{suffix}"):
        load(tmp_path, f"saved.{suffix}")


@pytest.mark.parametrize("content", [b"", b"not a tensor", b"PK\x03\x04 and no more", b"\x93NUMPY\x01\x00v\x00{'descr"])
@pytest.mark.parametrize("suffix", ["pt", "npy"])
def test_damaged_files_are_named(tmp_path: Path, content: bytes, suffix: str) -> None:
    (tmp_path / f"x.{suffix}").write_bytes(content)
    with pytest.raises(DumpError, match=f"x.{suffix}"):
        load(tmp_path, f"x.{suffix}")


@pytest.mark.parametrize("suffix", ["pt", "npy"])
def test_files_cut_off_or_with_flipped_bytes_load_or_are_refused(tmp_path: Path, suffix: str) -> None:
    whole = tmp_path / f"whole.{suffix}"
    torch.save(VALUES, whole) if suffix == "pt" else np.save(whole, VALUES.numpy())
    content = whole.read_bytes()
    for place in range(0, len(content), max(len(content) // 60, 1)):
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        for damaged in (content[:place], bytes(flipped)):
            (tmp_path / f"x.{suffix}").write_bytes(damaged)
            try:
                load(tmp_path, f"x.{suffix}")
            except DumpError as error:
                assert f"x.{suffix}" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("content", [{"a": VALUES}, [VALUES], 3], ids=lambda value: type(value).__name__)
def test_anything_but_a_tensor_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(DumpError, match="not a tensor of one shape"):
        load(tmp_path, "x.pt")


@pytest.mark.parametrize(("dtype", "shape"), [("torch.float16", (2, 3)), ("torch.float32", (3, 2))])
def test_a_file_of_another_dump_is_recognised(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    torch.save(VALUES, tmp_path / "x.pt")
    with pytest.raises(DumpError, match="another dump"):
        load(tmp_path, "x.pt", dtype, shape)
