from __future__ import annotations

import json
import signal
import threading
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from msprobe_hooks import ConfigError, RecordingError, record
from msprobe_hooks.dump.containers import find_tensor
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.schema import TensorElement, tensors_of
from msprobe_hooks.recording import tensor_files as recorded_files
from msprobe_hooks.recording.config import read_config
from msprobe_hooks.torch.tensor_files import ContainerFiles
from msprobe_hooks.torch.write_batches import BATCH_BYTES, Buffers
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.results.outcomes import Skip
from tests.support.dumps.every_dtype import DTYPES, bits, some


def saved(folder: Path, tensors: dict[str, torch.Tensor], *, compresses: bool = False) -> dict[str, str]:
    """Save tensors by the names of files, and return what records say of them."""
    files = ContainerFiles(folder, Buffers(), compresses=compresses)
    with torch.no_grad():
        data_names = {name: files.save(tensor, name) for name, tensor in tensors.items()}
    files.close()
    assert not files.refused
    return data_names


def loaded(folder: Path, data_name: str, like: torch.Tensor, *, mapped: bool = False) -> torch.Tensor:
    element = TensorElement("torch.Tensor", str(like.dtype), tuple(like.shape), data_name=data_name)
    return load_tensor(element, folder, mapped=mapped)


@pytest.mark.parametrize("mapped", [True, False])
def test_every_dtype_and_layout_is_read_back_bit_by_bit(tmp_path, mapped):
    tensors = {}
    for dtype in DTYPES:
        whole = some(dtype, 5, 7)
        shapes = {"whole": whole, "turned": whole.t(), "scalar": whole[2, 3], "none": whole[:0]}
        shapes["wide"] = whole[:1].expand(4, 7)
        tensors |= {f"{dtype}.{shape}.pt": tensor for shape, tensor in shapes.items()}
    data_names = saved(tmp_path, tensors)
    assert data_names["torch.bool.none.pt"] == "0.safetensors::torch.bool.none"
    assert [path.name for path in tmp_path.iterdir()] == ["0.safetensors"]
    for name, tensor in tensors.items():
        assert bits(loaded(tmp_path, data_names[name], tensor, mapped=mapped)) == bits(tensor)


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(DTYPES)), min_size=1, max_size=9))
def test_any_batch_is_a_file_of_the_format_with_aligned_tensors(tmp_path_factory, kinds):
    folder = tmp_path_factory.mktemp("files")
    tensors = {str(place): some(dtype, *shape) for place, (shape, dtype) in enumerate(kinds)}
    saved(folder, tensors)
    found = load_file(folder / "0.safetensors")
    assert {name: bits(tensor) for name, tensor in found.items()} == {
        name: bits(each) for name, each in tensors.items()
    }
    for name, tensor in tensors.items():
        assert find_tensor(folder / "0.safetensors", name).start % tensor.dtype.itemsize == 0


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=3), st.sampled_from(DTYPES)), min_size=1, max_size=5),
    st.booleans(),
)
def test_any_batch_that_is_compressed_is_read_back_bit_by_bit(tmp_path_factory, kinds, mapped):
    folder = tmp_path_factory.mktemp("files")
    tensors = {str(place): some(dtype, *shape) for place, (shape, dtype) in enumerate(kinds)}
    data_names = saved(folder, tensors, compresses=True)
    assert load_file(folder / "0.safetensors").keys() == tensors.keys()
    for name, tensor in tensors.items():
        found = loaded(folder, data_names[name], tensor, mapped=mapped)
        assert bits(found) == bits(tensor)
        # As of what is mapped, changes are the reader's own.
        found.zero_()


def test_only_those_tensors_are_compressed_that_become_smaller(tmp_path):
    noise = torch.randint(0, 256, (4096,), dtype=torch.uint8)
    tensors = {"noise": noise, "weights": torch.randn(64, 64), "few": torch.zeros(100), "mask": torch.ones(4096).bool()}
    data_names = saved(tmp_path, tensors, compresses=True)
    found = {name: find_tensor(tmp_path / "0.safetensors", name) for name in tensors}
    assert {name for name, each in found.items() if each.codec is not None} == {"weights", "mask"}
    assert found["mask"].size < 64
    assert found["weights"].size < 0.9 * 4 * 64 * 64
    for name, tensor in tensors.items():
        assert torch.equal(loaded(tmp_path, data_names[name], tensor), tensor)


def test_nothing_is_compressed_while_much_waits_to_be_written(tmp_path, monkeypatch):
    files, gate = ContainerFiles(tmp_path, Buffers(), compresses=True), threading.Event()
    files.queue(gate.wait, 0)
    for name in ("first.pt", "second.pt"):
        files.save(torch.zeros(4096), name)
        files.flush()
    monkeypatch.setattr(recorded_files, "_WAITING_BYTES", 10)
    gate.set()
    files.close()
    assert find_tensor(tmp_path / "0.safetensors", "first").codec is None
    assert find_tensor(tmp_path / "1.safetensors", "second").codec is not None


@pytest.mark.parametrize("compresses", [True, False])
def test_the_bytes_that_are_counted_are_those_of_the_files(tmp_path, compresses):
    files = ContainerFiles(tmp_path, Buffers(), compresses=compresses)
    files.save(torch.zeros(4096), "x.pt")
    files.close()
    assert files.bytes == (tmp_path / "0.safetensors").stat().st_size


def test_compressed_containers_of_one_step_are_the_same_bytes(tmp_path):
    torch.manual_seed(0)
    tensors = {str(place): torch.randn(50, 50, dtype=dtype) for place, dtype in enumerate((torch.float32, torch.half))}
    for name in "ab":
        (tmp_path / name).mkdir()
        saved(tmp_path / name, tensors, compresses=True)
    assert (tmp_path / "a/0.safetensors").read_bytes() == (tmp_path / "b/0.safetensors").read_bytes()


def test_a_batch_that_is_full_begins_the_next_container(tmp_path):
    large = torch.randn(BATCH_BYTES // 4 + 1)
    medium = {f"medium {i}": torch.randn(BATCH_BYTES // 16 - 3) for i in range(9)}
    tensors = {"before": torch.ones(3), "large": large, **medium, "after": torch.zeros(2)}
    data_names = saved(tmp_path, tensors)
    assert {path.name for path in tmp_path.iterdir()} == {f"{number}.safetensors" for number in range(5)}
    for name, tensor in tensors.items():
        assert torch.equal(loaded(tmp_path, data_names[name], tensor), tensor)


def test_what_is_no_plain_tensor_has_a_file_of_its_own(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data_names = saved(tmp_path, {"sparse.pt": torch.eye(4).to_sparse(), "plain.pt": torch.eye(4)})
        found = torch.load(tmp_path / "sparse.pt", weights_only=True)
    assert data_names == {"sparse.pt": "sparse.pt", "plain.pt": "0.safetensors::plain"}
    assert torch.equal(found.to_dense(), torch.eye(4))


def test_of_two_tensors_with_one_name_the_later_one_is_kept(tmp_path):
    files = ContainerFiles(tmp_path, Buffers())
    for value in (torch.zeros(3), torch.ones(2)):
        files.save(value, "x.pt")
    files.close()
    assert torch.equal(load_file(tmp_path / "0.safetensors")["x"], torch.ones(2))


def test_a_name_that_is_no_text_is_kept_as_its_escape(tmp_path):
    tensors = {"\udc80.pt": torch.ones(3), 'a"\n%2Fü.pt': torch.ones(2)}
    data_names = saved(tmp_path, tensors)
    assert data_names["\udc80.pt"] == r"0.safetensors::\udc80"
    for name, tensor in tensors.items():
        assert torch.equal(loaded(tmp_path, data_names[name], tensor), tensor)


def test_a_tensor_that_calls_share_is_stored_once_and_anew_when_it_changed(tmp_path):
    with record(tmp_path, task="tensor", tensor_files="safetensors"):
        x = torch.ones(64)
        torch.relu(x)
        torch.sigmoid(x)
        x.add_(1)
        torch.tanh(x)
    dump = read_dump(tmp_path / "step0/rank/dump.json")
    relu, sigmoid, tanh = (
        tensors_of(dump.forward(f"Torch.{name}.0.forward").args)[0] for name in ("relu", "sigmoid", "tanh")
    )
    assert relu.data_name == sigmoid.data_name == "0.safetensors::Torch.relu.0.forward.input.0"
    assert torch.equal(load_tensor(sigmoid, dump.tensor_folder), torch.ones(64))
    assert torch.equal(load_tensor(tanh, dump.tensor_folder), torch.full((64,), 2.0))


def test_a_killed_recording_leaves_whole_containers(forked, tmp_path):
    folder = tmp_path / "d/step0/rank/dump_tensor_data"
    script = (
        "import os, signal, threading, time, torch\n"
        "from msprobe_hooks import record\n"
        "def kill():\n"
        f"    while not os.path.exists({str(folder / '1.safetensors')!r}): time.sleep(0.001)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"with record({str(tmp_path / 'd')!r}, task='tensor', tensor_files='safetensors'):\n"
        "    threading.Thread(target=kill).start()\n"
        "    while True: torch.tanh(torch.ones(2))\n"
    )
    assert forked.run(script, tmp_path).returncode == -signal.SIGKILL
    dump = read_dump(folder.parent / "dump.json")
    there = 0
    for name in dump.api_names:
        (output,) = tensors_of(dump.forward(name).output)
        try:
            assert torch.equal(load_tensor(output, dump.tensor_folder), torch.tanh(torch.ones(2)))
        except Skip:
            # Its container was not written yet, and there is none of its name.
            continue
        there += 1
    assert there


def test_a_folder_that_takes_no_container_is_reported_at_the_end(tmp_path):
    files = ContainerFiles(tmp_path / "missing", Buffers())
    files.save(torch.ones(2), "x.pt")
    with pytest.raises(RecordingError, match="missing: a tensor cannot be written"):
        files.close()


def test_a_configuration_file_may_ask_for_containers(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"task": "tensor", "tensor_files": "safetensors"}))
    assert read_config(tmp_path / "config.json").tensor_files == "safetensors"


def test_a_kind_of_file_that_there_is_none_of_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(ConfigError, match="tensor_files is 'zip'; allowed: pt, safetensors"):
        record(tmp_path, task="tensor", tensor_files="zip").__enter__()


def test_a_configuration_file_may_ask_for_compression(tmp_path):
    keys = {"task": "tensor", "tensor_files": "safetensors", "compression": "zstd"}
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert read_config(tmp_path / "config.json").compression == "zstd"


def test_compression_is_of_containers_alone(tmp_path):
    with pytest.raises(
        ConfigError, match="compression is 'zstd'; allowed: none, or zstd with tensor_files safetensors"
    ):
        record(tmp_path, task="tensor", compression="zstd").__enter__()


def test_a_recording_without_the_codecs_library_is_refused_with_the_remedy(forked, tmp_path):
    script = (
        "import sys\nsys.modules['zstandard'] = None\nfrom msprobe_hooks import record\n"
        "with record('d', task='tensor', tensor_files='safetensors', compression='zstd'): pass\n"
    )
    errors = forked.run(script, tmp_path).stderr
    assert "compression is 'zstd'; allowed: none, or zstd with zstandard: pip install 'pytest-msprobe[compr" in errors
    assert not (tmp_path / "d").exists()
