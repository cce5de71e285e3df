from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from msprobe_hooks import RecordingError
from msprobe_hooks.recording import tensor_files


class Files(tensor_files.TensorFiles):
    """Saves byte arrays; writing waits until ``may_write`` is set."""

    def __init__(self, folder: Path) -> None:
        self.may_write = threading.Event()
        super().__init__(folder)

    def copy(self, tensor: bytearray) -> bytes:
        return bytes(tensor)

    def size(self, copy: bytes) -> int:
        return len(copy)

    def write(self, copy: bytes, path: Path) -> None:
        self.may_write.wait()
        path.write_bytes(copy)


def test_what_is_written_is_what_was_saved_even_where_it_was_changed_since(tmp_path):
    files, value = Files(tmp_path), bytearray(b"before")
    files.save(value, "one")
    value[:] = b"after."
    files.may_write.set()
    files.close()
    assert (tmp_path / "one").read_bytes() == b"before"
    assert files.bytes == 6


def test_a_save_waits_while_too_many_bytes_wait_to_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "_WAITING_BYTES", 10)
    files = Files(tmp_path)
    files.save(bytearray(8), "one")
    second = threading.Thread(target=files.save, args=(bytearray(8), "two"))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    files.may_write.set()
    second.join(60)
    assert not second.is_alive()
    files.close()
    assert files.bytes == 16


def test_a_program_that_waits_for_room_is_held_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "_WAITING_BYTES", 10)
    files = Files(tmp_path)
    for _ in range(2):
        files.queue(files.may_write.wait, 8)
    assert not files.holds_up(16)
    waiting = threading.Thread(target=files.wait_for_room)
    waiting.start()
    while not files.holds_up(16):
        time.sleep(0.001)
    files.may_write.set()
    waiting.join(60)
    assert not files.holds_up(0)
    files.close()


def test_one_tensor_larger_than_the_bound_is_saved_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "_WAITING_BYTES", 10)
    files = Files(tmp_path)
    files.may_write.set()
    files.save(bytearray(100), "one")
    files.close()
    assert files.bytes == 100


def test_a_file_that_cannot_be_written_is_reported_at_the_end(tmp_path):
    files = Files(tmp_path / "missing")
    files.may_write.set()
    files.save(bytearray(1), "one")
    with pytest.raises(RecordingError, match="missing: a tensor cannot be written"):
        files.close()


def test_a_tensor_that_no_file_can_hold_costs_itself(tmp_path):
    class Picky(Files):
        def write(self, copy, path):
            if copy == b"bad":
                raise TypeError("cannot pickle")
            path.write_bytes(copy)

    files = Picky(tmp_path)
    for value in (b"bad", b"good"):
        files.save(bytearray(value), value.decode())
    files.close()
    assert [name for name, _ in files.refused] == ["bad"]
    assert (tmp_path / "good").read_bytes() == b"good"


def test_a_refused_tensor_whose_file_cannot_be_removed_ends_nothing(tmp_path):
    class Refusing(Files):
        def write(self, copy, path):
            if copy == b"bad":
                path.mkdir()
                raise TypeError("cannot pickle")
            path.write_bytes(copy)

    files = Refusing(tmp_path)
    for value in (b"bad", b"good"):
        files.save(bytearray(value), value.decode())
    files.close()
    assert [name for name, _ in files.refused] == ["bad"]
    assert (tmp_path / "good").read_bytes() == b"good"


def test_a_job_that_raises_does_not_leave_the_program_waiting_for_its_thread(tmp_path):
    files = Files(tmp_path)

    def fail() -> None:
        raise MemoryError

    files.queue(fail, 1)
    waiting = threading.Thread(target=_expecting_failure, args=(files,), daemon=True)
    waiting.start()
    waiting.join(30)
    assert not waiting.is_alive()


def _expecting_failure(files: Files) -> None:
    with pytest.raises(RecordingError, match="a tensor cannot be written: MemoryError"):
        files.wait()


def test_what_is_saved_after_the_files_were_closed_leaves_no_one_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "_WAITING_BYTES", 10)
    files = Files(tmp_path)
    files.may_write.set()
    files.close()
    late = threading.Thread(target=lambda: [files.save(bytearray(8), name) for name in "ab"], daemon=True)
    late.start()
    late.join(30)
    assert not late.is_alive()


def test_half_a_file_does_not_stay(tmp_path):
    class Filling(Files):
        def write(self, copy, path):
            path.write_bytes(copy[:1])
            raise OSError(28, "No space left on device")

    files = Filling(tmp_path)
    files.save(bytearray(b"whole"), "one")
    with pytest.raises(RecordingError, match="No space left on device"):
        files.close()
    assert list(tmp_path.iterdir()) == []
