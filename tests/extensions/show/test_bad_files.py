"""Files that are none, or that would run something."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

Show = Callable[..., tuple[int, str]]


class Runs:
    """Creates a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["bad.pkl", "bad.pt", "bad.npy"])
def test_a_pickle_is_refused_and_runs_nothing(tmp_path: Path, show: Show, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Runs(tmp_path / "made"), protocol=2))
    status, text = show(tmp_path / name)
    assert status == 2
    assert "pickled objects (posix.mkdir) are not loaded" in text
    assert not (tmp_path / "made").exists()


def test_a_module_saved_whole_is_refused_by_its_class(tmp_path: Path, show: Show) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    status, text = show(tmp_path / "model.pt")
    assert status == 2
    assert "pickled objects (torch.nn.modules.linear.Linear) are not loaded, as they could run any code" in text


def test_an_array_of_objects_is_refused(tmp_path: Path, show: Show) -> None:
    np.save(tmp_path / "x.npy", np.array([Runs(tmp_path / "made")]), allow_pickle=True)
    status, text = show(tmp_path / "x.npy")
    assert status == 2
    assert "pickled objects" in text
    assert not (tmp_path / "made").exists()


def _whole(suffix: str) -> bytes:
    file = io.BytesIO()
    if suffix == "npy":
        np.save(file, np.ones(300))
    elif suffix == "pt":
        torch.save({"w": torch.ones(300)}, file)
    else:
        return save({"w": torch.ones(300)})
    return file.getvalue()


@pytest.mark.parametrize("suffix", ["npy", "pt", "safetensors"])
@pytest.mark.parametrize("kept", [0, 3, 9, 40, 300])
def test_a_file_that_was_cut_off_is_one_clear_error(tmp_path: Path, show: Show, suffix: str, kept: int) -> None:
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(_whole(suffix)[:kept])
    status, text = show(path)
    assert status == 2
    assert text.startswith(f"pytest-msprobe: {path}: ")
    assert len(text.splitlines()) == 1


def test_an_archive_with_a_damaged_end_is_one_clear_error(tmp_path: Path, show: Show) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": torch.ones(2)}, path)
    data = bytearray(path.read_bytes())
    # The number of disks in the locator of a zip64 archive.
    data[data.rfind(b"PK\x06\x07") + 16] = 2
    path.write_bytes(data)
    status, text = show(path)
    assert status == 2
    assert "x.pt: a damaged archive: zipfiles that span multiple disks are not supported; copy the file again" in text


def test_a_header_that_claims_terabytes_is_refused(tmp_path: Path, show: Show) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
    (tmp_path / "y.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    for name in ("x.npy", "y.safetensors"):
        assert show(tmp_path / name)[0] == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--standard", "nope"], "--standard: unknown standard"),
        (["--policy", "nope"], "--policy: unknown policy"),
    ],
)
def test_an_unknown_standard_is_reported_with_those_that_there_are(
    tmp_path: Path, show: Show, words: list[str], problem: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    status, text = show(tmp_path / "x.npy", tmp_path / "x.npy", *words)
    assert status == 2
    assert problem in text


def test_a_missing_file_and_a_folder_without_anything_are_named(tmp_path: Path, show: Show) -> None:
    assert "no such file or directory; pass a .npy" in show(tmp_path / "gone.npy")[1]
    status, text = show(tmp_path)
    assert status == 2
    assert str(tmp_path) in text


def test_a_tensor_that_was_saved_without_elements_is_reported_so(tmp_path: Path, show: Show) -> None:
    torch.save({"w": torch.empty(3, device="meta")}, tmp_path / "meta.pt")
    assert "saved without elements" in show(tmp_path / "meta.pt")[1]
    assert show(tmp_path / "meta.pt", tmp_path / "meta.pt")[0] == 1


def test_elements_that_torch_cannot_widen_are_reported_so(tmp_path: Path, show: Show) -> None:
    torch.save({"w": torch.zeros(3, dtype=torch.uint8).view(torch.bits8)}, tmp_path / "packed.pt")
    assert "torch does not compute with torch.bits8" in show(tmp_path / "packed.pt")[1]


def test_tensors_that_are_called_alike_meet_in_their_order(tmp_path: Path, show: Show) -> None:
    torch.save({"a.b": torch.ones(3), "a": {"b": torch.zeros(3)}}, tmp_path / "alike.pt")
    assert show(tmp_path / "alike.pt", tmp_path / "alike.pt")[0] == 0
    assert "a.b#2" in show(tmp_path / "alike.pt")[1]
