"""What torch's versions cannot be trusted with is refused before torch sees it, in each place that reads its files."""

from __future__ import annotations

import io
import pickle
import tarfile
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch import torch_files
from msprobe_hooks.torch.torch_files import RefusedFileError, load_torch_file
from pytest_msprobe.commands.main import main
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint
from tests.support.dumps.dump_files import forward, tensor, write_dump


def torchscript() -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # It is on its way out of torch, its files are not.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(2)), buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def tar() -> bytes:
    # As torch before 0.2 wrote it, though with the first byte of a pickle, by which some tell files.
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT, encoding="latin-1") as archive:
        for name in ("\x80storages", "tensors", "pickle"):
            archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


def hidden_torchscript() -> bytes:
    """Return TorchScript with a second list of files before the archive's end, which readers in Python believe."""
    script = torchscript()
    start = script.index(b"PK\x01\x02")
    listed = script[start : script.index(b"PK\x06\x06")]
    harmless = listed.replace(b"/constants.pkl", b"/innocence.pkl").replace(b"/code/", b"/data/")
    end = script[-22:]
    return script[:start] + listed + harmless + end


@pytest.fixture(params=[torchscript, tar, hidden_torchscript], ids=["TorchScript", "tar", "hidden TorchScript"])
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return a file that older versions of torch run, and fail where torch is given it."""
    content: bytes = request.param()
    load = torch.load

    def watched(file: Any, **kwargs: Any) -> Any:
        seen = Path(file).read_bytes() if isinstance(file, str) else file.getvalue()
        assert seen != content, "torch was given the file"
        return load(file, **kwargs)

    monkeypatch.setattr(torch, "load", watched)
    return content


def of_dump(folder: Path, content: bytes) -> None:
    (folder / "x.pt").write_bytes(content)
    load_tensor(TensorElement("torch.Tensor", "torch.float32", (2,), data_name="x.pt"), folder)


def of_checkpoint(folder: Path, content: bytes) -> None:
    (folder / "x.pt").write_bytes(content)
    read_checkpoint(main_file(folder))


def of_megatron(folder: Path, content: bytes) -> None:
    for rank in ("00", "01"):
        (folder / f"mp_rank_{rank}").mkdir()
    args = {"args": Namespace(tensor_model_parallel_size=2), "model": {"w": torch.ones(2)}}
    torch.save(args, folder / "mp_rank_00/model_optim_rng.pt")
    (folder / "mp_rank_01/model_optim_rng.pt").write_bytes(content)
    read_checkpoint(main_file(folder))


def of_dcp(folder: Path, content: bytes) -> None:
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"w": torch.ones(2)}, checkpoint_id=folder, no_dist=True)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    (place,) = metadata.storage_data.values()
    place.offset, place.length = 0, len(content)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    (folder / place.relative_path).write_bytes(content)
    read_checkpoint(main_file(folder)).parameters["w"].load()


def in_show(folder: Path, content: bytes) -> None:
    (folder / "x.pt").write_bytes(content)
    assert main(["show", str(folder / "x.pt")]) == 2
    raise RefusedFileError("refused")


PLACES: dict[str, Callable[[Path, bytes], None]] = {
    place.__name__: place for place in (of_dump, of_checkpoint, of_megatron, of_dcp, in_show)
}


@pytest.mark.parametrize("place", PLACES)
def test_what_old_versions_run_never_reaches_torch(
    tmp_path: Path, place: str, planted: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((DumpError, CheckpointError, RefusedFileError)) as refused:
        PLACES[place](tmp_path, planted)
    reported = str(refused.value) + capsys.readouterr().err
    assert "which holds code and is not read" in reported or "which may run code and is not read" in reported
    assert str(tmp_path) in reported


@pytest.mark.parametrize("is_legacy", [False, True], ids=["zip", "legacy"])
def test_what_torch_saves_of_tensors_is_read(tmp_path: Path, is_legacy: bool) -> None:
    tree = {f"constants.pkl/code/{n}": torch.full((2,), float(n)) for n in range(200)}
    torch.save(tree, tmp_path / "constants.pkl", _use_new_zipfile_serialization=not is_legacy)
    found = load_torch_file(tmp_path / "constants.pkl", mapped=True)
    assert all(torch.equal(found[name], each) for name, each in tree.items())


def test_an_unsafe_torch_is_named_in_the_header_of_runs_that_read_its_files(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dump(pytester.path, {"Torch.relu.0.forward": forward(tensor(2))})
    torch.save(torch.ones(2), pytester.path / "x.pt")
    warning = f"torch {torch.__version__} is not safe against crafted .pt files"

    def reported() -> list[bool]:
        check = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--collect-only").stdout.str()
        compared = ("--msprobe-checkpoint=x.pt", "--msprobe-golden=x.pt", "--collect-only")
        checkpoint = pytester.runpytest_inprocess(*compared).stdout.str()
        capsys.readouterr()
        assert main(["show", "x.pt"]) == 0
        return [warning in text for text in (check, checkpoint, capsys.readouterr().err)]

    assert reported() == [False] * 3
    monkeypatch.setattr(torch_files, "SAFE_SINCE", (1000, 0))
    assert reported() == [True] * 3


def test_the_promise_names_the_versions_that_it_needs() -> None:
    root = Path(__file__).parents[2]
    since = ".".join(map(str, torch_files.SAFE_SINCE))
    for name in ("SECURITY.md", "README.md"):
        assert f"torch {since}" in (root / name).read_text(), name
