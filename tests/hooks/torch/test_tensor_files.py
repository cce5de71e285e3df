from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.torch.tensor_files import TorchTensorFiles
from msprobe_hooks.torch.write_batches import BATCH_BYTES, Buffers
from tests.support.dumps.every_dtype import DTYPES, bits, some


def saved(folder: Path, tensors: dict[str, torch.Tensor]) -> TorchTensorFiles:
    files = TorchTensorFiles(folder, Buffers())
    with torch.no_grad():
        for name, tensor in tensors.items():
            files.save(tensor, name)
    files.close()
    return files


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_loads_what_was_saved_bit_by_bit(tmp_path, dtype, mapped):
    whole = some(dtype, 5, 7)
    shapes = {
        "whole": whole,
        "turned": whole.t(),
        "scalar": whole[2, 3],
        "none": whole[:0],
        "wide": whole[:1].expand(4, 7),
    }
    saved(tmp_path, shapes)
    for name, tensor in shapes.items():
        loaded = torch.load(tmp_path / name, weights_only=True, mmap=mapped)
        assert (loaded.dtype, loaded.shape, loaded.device) == (dtype, tensor.shape, torch.device("cpu"))
        assert loaded.is_contiguous()
        assert bits(loaded) == bits(tensor)


@given(st.lists(st.integers(0, 6), max_size=5), st.sampled_from(DTYPES))
def test_a_file_holds_what_one_of_torch_holds(tmp_path_factory, shape, dtype):
    folder = tmp_path_factory.mktemp("files")
    tensor = some(dtype, *shape)
    saved(folder, {"ours": tensor})
    torch.save(tensor, folder / "theirs")
    ours, theirs = (torch.load(folder / name, weights_only=True) for name in ("ours", "theirs"))
    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    assert bits(ours) == bits(theirs)


def test_a_file_is_an_archive_whose_checksums_are_right(tmp_path):
    saved(tmp_path, {"one": torch.arange(300.0)})
    with zipfile.ZipFile(tmp_path / "one") as archive:
        assert archive.testzip() is None
        assert archive.read("archive/data/0") == bits(torch.arange(300.0))


def test_mapped_elements_are_aligned_for_vector_units(tmp_path):
    saved(tmp_path, {str(length): torch.zeros(length, 3) for length in range(1, 40)})
    for path in tmp_path.iterdir():
        assert torch.load(path, weights_only=True, mmap=True).data_ptr() % 64 == 0


def test_gradients_views_and_conjugates_are_saved_as_the_numbers_that_they_are(tmp_path):
    numbers = torch.randn(3, 4, dtype=torch.complex64)
    tensors = {
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "result": torch.randn(3, requires_grad=True) * 2,
        "conjugate": numbers.conj(),
        "negative": numbers.conj().imag,
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }
    saved(tmp_path, tensors)
    for name, tensor in tensors.items():
        loaded = torch.load(tmp_path / name, weights_only=True)
        assert not loaded.requires_grad
        assert torch.equal(loaded, tensor.detach())


def test_what_is_no_plain_tensor_is_saved_by_torch_itself(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = saved(tmp_path, {"sparse": torch.eye(4).to_sparse()})
        loaded = torch.load(tmp_path / "sparse", weights_only=True)
    assert not files.refused
    assert torch.equal(loaded.to_dense(), torch.eye(4))


def test_tensors_larger_than_a_batch_and_many_small_ones_are_all_there(tmp_path):
    large = torch.randn(BATCH_BYTES // 4 + 1)
    medium = {f"medium {i}": torch.randn(BATCH_BYTES // 16 - 3) for i in range(9)}
    files = saved(tmp_path, {"before": torch.ones(3), "large": large, **medium, "after": torch.zeros(2)})
    assert torch.equal(torch.load(tmp_path / "large", weights_only=True), large)
    for name, tensor in medium.items():
        assert torch.equal(torch.load(tmp_path / name, weights_only=True), tensor)
    assert files.bytes == 4 * (3 + large.numel() + 9 * (BATCH_BYTES // 16 - 3) + 2)


def test_what_a_program_changes_afterwards_is_saved_as_it_was(tmp_path):
    files, tensor = TorchTensorFiles(tmp_path, Buffers()), torch.ones(1000)
    files.save(tensor, "one")
    tensor.zero_()
    files.close()
    assert torch.equal(torch.load(tmp_path / "one", weights_only=True), torch.ones(1000))


def test_a_tensor_that_calls_share_is_on_the_disk_once_and_anew_when_it_changed(tmp_path):
    with record(tmp_path, task="tensor"):
        x = torch.ones(64)
        torch.relu(x)
        torch.sigmoid(x)
        x.add_(1)
        torch.tanh(x)
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    relu, sigmoid, tanh = (folder / f"Torch.{name}.0.forward.input.0.pt" for name in ("relu", "sigmoid", "tanh"))
    assert relu.samefile(sigmoid)
    assert not relu.samefile(tanh)
    assert torch.equal(torch.load(sigmoid, weights_only=True), torch.ones(64))
    assert torch.equal(torch.load(tanh, weights_only=True), torch.full((64,), 2.0))


def test_where_files_cannot_share_their_content_it_is_written_again(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError("one name for each file")

    monkeypatch.setattr(os, "link", refuse)
    with record(tmp_path, task="tensor"):
        x = torch.ones(64)
        torch.relu(x)
        torch.sigmoid(x)
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    relu, sigmoid = (folder / f"Torch.{name}.0.forward.input.0.pt" for name in ("relu", "sigmoid"))
    assert not relu.samefile(sigmoid)
    assert relu.read_bytes() == sigmoid.read_bytes()


def test_a_name_that_no_file_can_have_costs_that_tensor_alone(tmp_path):
    files = saved(tmp_path, {"good": torch.ones(2), "\udc80\ud800": torch.ones(3), "better": torch.ones(4)})
    assert [name for name, _ in files.refused] == ["\udc80\ud800"]
    assert torch.equal(torch.load(tmp_path / "good", weights_only=True), torch.ones(2))
    assert torch.equal(torch.load(tmp_path / "better", weights_only=True), torch.ones(4))


def test_a_signal_handler_may_stop_a_recording_whose_save_waits_for_room(tmp_path: Path) -> None:
    program = """
import os, signal, sys, threading
import torch
from msprobe_hooks import PrecisionDebugger
from msprobe_hooks.recording import tensor_files
from msprobe_hooks.torch.tensor_files import TorchTensorFiles

tensor_files._WAITING_BYTES = 10
is_signalled, write_batch = threading.Event(), TorchTensorFiles.write_batch

def write_late(files, batch):
    is_signalled.wait()
    write_batch(files, batch)

def end(number, frame):
    is_signalled.set()
    debugger.stop()
    sys.exit(3)

TorchTensorFiles.write_batch = write_late
signal.signal(signal.SIGTERM, end)
debugger = PrecisionDebugger(dump_path=sys.argv[1], task="tensor", level="L1")
debugger.start()
values = torch.zeros(2**20)
torch.add(values, 1)
threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
while True:
    torch.add(values, 1)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=600, check=False)
    assert done.returncode == 3
    folder = tmp_path / "step0" / "rank"
    names = re.findall(r'"data_name": ?"([^"]+)"', (folder / "dump.json").read_text())
    assert names
    assert [name for name in names if not (folder / "dump_tensor_data" / name).exists()] == []


@pytest.mark.parametrize("options", [{}, {"tensor_files": "safetensors"}], ids=["files", "containers"])
def test_a_large_expanded_tensor_is_written_once(tmp_path, options):
    mask = torch.arange(64.0).reshape(1, 64, 1).expand(512, 64, 512)
    with record(tmp_path / "d", task="tensor", **options):
        mask[0] + 1
    files = [path for path in (tmp_path / "d").rglob("*.*") if path.suffix in (".pt", ".safetensors")]
    assert sum(path.stat().st_size for path in files) < 2**19
    dump = read_dump(tmp_path / "d/step0/rank/dump.json")
    element = dump.forward("Tensor.__getitem__.0.forward").args[0]
    loaded = torch.load(tmp_path / "d/step0/rank/dump_tensor_data" / element.data_name, weights_only=True)
    assert torch.equal(loaded, mask)


@pytest.mark.slow
def test_of_a_large_buffer_only_what_a_call_takes_is_written(tmp_path, capsys):
    bucket = torch.zeros(2**28, dtype=torch.uint8)
    with record(tmp_path / "d", task="tensor"):
        bucket.narrow(0, 5, 3).float() + 1
    dump = read_dump(tmp_path / "d/step0/rank/dump.json")
    taken = dump.forward("Tensor.narrow.0.forward")
    assert taken.args[0].data_name is None
    assert (taken.args[0].max, taken.args[0].min) == (0, 0)
    assert taken.output[0].data_name is not None
    assert "1 tensor without values, as it is large and its call only takes a view of it" in capsys.readouterr().err


def test_a_checksum_of_a_huge_expanded_tensor_is_left_out_and_reported(tmp_path, capsys):
    with record(tmp_path / "d", summary_mode="md5"):
        torch.ones(1).expand(2**40)[:2] + 1
    element = read_dump(tmp_path / "d/step0/rank/dump.json").forward("Tensor.__getitem__.0.forward").args[0]
    assert (element.checksum, element.max) == (None, 1.0)
    assert "without a checksum, as it is expanded to more than 256 MiB" in capsys.readouterr().err
