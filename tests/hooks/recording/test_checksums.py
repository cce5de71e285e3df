"""CRC-32s of what a program computes: right whatever it does afterwards."""

from __future__ import annotations

import gc
import weakref
import zlib

import numpy as np
import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.checksums import ChecksumThread
from msprobe_hooks.recording.tensor_entry import Statistics


@pytest.fixture(autouse=True)
def _in_the_thread(monkeypatch):
    monkeypatch.setattr(checksums, "_AT_ONCE_BYTES", 64)


def expected(tensor):
    """Return the checksum of a tensor as it is now."""
    return f"{zlib.crc32(tensor.detach().contiguous().numpy().tobytes()):08x}"


def test_a_tensor_that_is_written_over_at_once_has_the_checksum_of_its_former_values(tmp_path, records):
    x = torch.arange(100_000.0)
    want = []
    with record(tmp_path / "d", summary_mode="md5"):
        for _ in range(20):
            y = torch.tanh(x)
            want += [expected(x), expected(y)]
            y.zero_()
            x.numpy()[:] += 1.0
    found = records(tmp_path / "d")
    calls = [found[f"Torch.tanh.{number}.forward"] for number in range(20)]
    assert [call[side][0]["md5"] for call in calls for side in ("input_args", "output")] == want


def test_a_transposed_tensor_has_the_checksum_of_its_elements_in_order(tmp_path, records):
    x = torch.arange(600.0).reshape(20, 30).t()
    with record(tmp_path / "d", summary_mode="md5"):
        torch.tanh(x)
    assert records(tmp_path / "d")["Torch.tanh.0.forward"]["input_args"][0]["md5"] == expected(x)


class Saved:
    """What autograd keeps of a call for its backward pass."""

    def __init__(self, tensor):
        self.tensor = tensor


def test_tensors_and_their_graph_are_freed_when_the_program_lets_go_of_them(tmp_path):
    saved = []

    def pack(tensor):
        kept = Saved(tensor.detach())
        saved.append(weakref.ref(kept))
        return kept

    with record(tmp_path / "d", summary_mode="md5"):
        x = torch.ones(1000, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
            y = torch.tanh(x)
        result = weakref.ref(y)
        assert saved[0]() is not None
        del y
        gc.collect()
        assert (result(), saved[0]()) == (None, None)


def test_where_too_much_waits_the_checksum_is_taken_at_once(monkeypatch):
    monkeypatch.setattr(checksums, "_WAITING_BYTES", 1000)
    thread, raw = ChecksumThread(), np.arange(1001, dtype=np.uint8)
    statistics = Statistics()
    thread.take(raw, statistics)
    assert statistics.checksum == f"{zlib.crc32(raw.tobytes()):08x}"
    assert not statistics.is_waiting


def test_bytes_that_wait_have_their_checksum_when_it_is_waited_for():
    thread = ChecksumThread()
    arrays = [np.full(5000, value, np.uint8) for value in range(50)]
    given = [Statistics() for _ in arrays]
    want = [f"{zlib.crc32(raw.tobytes()):08x}" for raw in arrays]
    for raw, statistics in zip(arrays, given, strict=True):
        thread.take(raw, statistics)
    thread.wait()
    assert [statistics.checksum for statistics in given] == want
    thread.close()


def test_python_isal_and_zlib_agree():
    isal_zlib = pytest.importorskip("isal.isal_zlib")
    raw = np.random.default_rng(0).integers(0, 256, 100_001, np.uint8)
    assert isal_zlib.crc32(raw.data) == zlib.crc32(raw.data)


def test_a_checksum_that_fails_is_raised_where_it_is_awaited_and_the_next_one_is_taken(monkeypatch):
    thread, failed, taken = ChecksumThread(), Statistics(), Statistics()
    raw = np.zeros(1000, np.uint8)
    former = checksums.crc32
    monkeypatch.setattr(checksums, "crc32", lambda _: [][0])
    thread.take(raw, failed)
    thread.wait()
    monkeypatch.setattr(checksums, "crc32", former)
    with pytest.raises(IndexError):
        thread.check()
    thread.take(raw, taken)
    thread.wait()
    thread.check()
    thread.close()
    assert (failed.checksum, taken.checksum) == (None, f"{zlib.crc32(raw):08x}")
