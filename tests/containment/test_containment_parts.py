"""The pieces of containment, each by itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.containment import memory_reservation
from pytest_msprobe.containment.captured_stderr import KILLED_FROM_OUTSIDE, CapturedStderr, explain, read, tail
from pytest_msprobe.containment.deadline import DeadlineExceededError, allowed_seconds, deadline, paused
from pytest_msprobe.containment.memory_reservation import MemoryReservation
from pytest_msprobe.containment.readers_writer_lock import ReadersWriterLock
from pytest_msprobe.containment.run_folder import RunFolder
from pytest_msprobe.results.outcomes import Skip
from tests.support.forked import Forked


@given(base=st.floats(0.1, 1e4), shape=st.lists(st.integers(0, 10**6), max_size=4))
def test_a_limit_grows_with_the_recorded_elements(base: float, shape: list[int]) -> None:
    elements = 1
    for size in shape:
        elements *= size
    record = b'{"input_args": [{"shape": %s}, {"shape":%s}]}' % (str(shape).encode(), str(shape).encode())
    assert allowed_seconds(base, [record, b"{}"]) == pytest.approx(min(base * (1 + 2 * elements / 10**7), 1e9))


@pytest.mark.parametrize("shape", ["9223372036854775807, 4", "1" + "0" * 400, "1" + "0" * 5000, "0, 1" + "0" * 400])
def test_a_limit_can_be_set_whatever_sizes_a_record_claims(shape: str) -> None:
    seconds = allowed_seconds(5, [b'{"shape": [%s]}' % shape.encode()])
    with deadline(seconds, watchdog=1):
        pass


def test_no_limit_stays_none() -> None:
    assert allowed_seconds(None, [b'{"shape": [9]}']) is None


def test_the_clock_stands_still_while_an_item_waits_for_others() -> None:
    done: list[str] = []

    def wait_and_compute() -> None:
        with paused():
            time.sleep(4)
        done.append("waited")
        time.sleep(60)

    with pytest.raises(DeadlineExceededError), deadline(3, watchdog=None):
        wait_and_compute()
    assert done == ["waited"]


def test_code_that_swallows_its_interruption_is_over_its_limit_all_the_same() -> None:
    with pytest.raises(DeadlineExceededError), deadline(0.05, watchdog=None), contextlib.suppress(BaseException):
        time.sleep(60)


def test_what_code_makes_of_its_interruption_is_over_the_limit() -> None:
    def wrap() -> None:
        try:
            time.sleep(60)
        except BaseException as error:
            raise RuntimeError("cannot compute") from error

    with pytest.raises(DeadlineExceededError), deadline(0.05, watchdog=None):
        wrap()


def test_a_limit_holds_after_an_item_that_blocked_the_alarm() -> None:
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        with deadline(60, watchdog=None):
            assert signal.SIGALRM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


@pytest.mark.parametrize(
    ("status", "words", "memory_ran_out", "outcome", "said"),
    [
        (-11, "", False, "crash", "was killed by SIGSEGV"),
        (-9, "", False, "crash", "was killed by SIGKILL"),
        (-9, "", True, "oom", "ran out of memory"),
        (-11, "", True, "crash", "was killed by SIGSEGV"),
        (3, "driver: gone", False, "crash", "exited with status 3\nCaptured stderr:\ndriver: gone"),
        (None, "", False, "crash", "the process that ran it died"),
        (1, "Timeout (0:01:05)!\n", False, "timeout", "killed after 65 s"),
        (-9, f"{KILLED_FROM_OUTSIDE}\n", True, "timeout", "its process was killed while stopped or in the system"),
        (1, "no Timeout (0:01:05)!", False, "crash", "exited with status 1"),
        (-63, "", False, "crash", "was killed by signal 63"),
    ],
)
def test_a_death_is_reported_by_status_words_and_memory(
    status: int | None, words: str, memory_ran_out: bool, outcome: str, said: str
) -> None:
    cause = explain(status, words, memory_ran_out=memory_ran_out)
    assert cause.breakdown.value == outcome
    assert said in cause.reason


def test_the_tail_is_short_and_ends_a_traceback_at_the_item() -> None:
    lines = [f"line {number}" for number in range(50)]
    assert tail("\n".join(lines)).splitlines() == lines[-20:]
    assert len(tail("x" * 10_000)) == 2000
    traceback = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/home/me/conftest.py", line 3 in call
  File "/x/pytest_msprobe/run/item.py", line 57 in runtest
  File "/x/pluggy/_execution.py", line 3 in call

Extension modules: numpy (total: 1)
"""
    assert tail(traceback).splitlines()[2:] == ['  File "/home/me/conftest.py", line 3 in call']


def test_stderr_is_kept_from_above_and_below_for_one_item(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = CapturedStderr(tmp_path / "words")
    for text in ("first", "second"):
        with words.kept():
            os.write(2, f"below {text}\n".encode())
            sys.stderr.write(f"above {text}\n")
    assert read(words.path) == "below second\nabove second\n"
    assert sorted(capfd.readouterr().err.splitlines()) == ["above first", "above second", "below first", "below second"]


def test_nothing_runs_next_to_a_record_that_is_alone(tmp_path: Path) -> None:
    log: list[str] = []
    spaces: list[str] = []
    together = ReadersWriterLock(tmp_path, lambda: spaces.append("made"))

    def run_alone() -> None:
        with ReadersWriterLock(tmp_path, list).exclusive():
            log.append("alone")

    with together.shared(), ReadersWriterLock(tmp_path, list).shared():
        thread = threading.Thread(target=run_alone)
        thread.start()
        time.sleep(0.2)
        log.append("together")
    thread.join()
    assert log == ["together", "alone"]
    assert spaces == ["made"]


# What is really free changes with every other process of the machine.
FREE_BYTES = 8 * 2**30


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Have a machine of eight GiB, all of which are free."""

    def free() -> int:
        return FREE_BYTES

    monkeypatch.setattr(memory_reservation, "free_bytes", free)
    monkeypatch.setattr(memory_reservation, "total_bytes", free)
    return free


@pytest.fixture
def other_worker(forked: Forked, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The process of another worker, which has reserved nearly all that such a machine gives."""
    reported = tmp_path_factory.mktemp("reported")
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from pytest_msprobe.containment import memory_reservation\n"
        "from pytest_msprobe.engine.replay.trials.memory_budget import SHARE\n"
        f"free = memory_reservation.free_bytes = memory_reservation.total_bytes = lambda: {FREE_BYTES}\n"
        "reservation = memory_reservation.MemoryReservation(Path(sys.argv[1]), 'other')\n"
        "reservation.admit(int(free() * SHARE * 0.95), free)\n"
        "Path(sys.argv[2], str(os.getpid())).touch(); signal.pause()"
    )
    with ThreadPoolExecutor() as pool:
        running = pool.submit(forked.run, code, tmp_path, str(tmp_path), str(reported))
        while not (found := list(reported.iterdir())):
            assert not running.done(), running.result().stderr
            time.sleep(0.01)
        (pid,) = (int(path.name) for path in found)
        yield pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_large_call_waits_for_what_another_worker_has_reserved(
    tmp_path: Path, other_worker: int, free: Callable[[], int]
) -> None:
    half = FREE_BYTES // 2
    with pytest.raises(Skip, match="GiB are free"):
        MemoryReservation(tmp_path, "impatient", patience=0.3).admit(half, free)
    # However it ends, its reservation ends with it.
    threading.Timer(0.3, os.kill, (other_worker, signal.SIGKILL)).start()
    reservation = MemoryReservation(tmp_path, "patient", patience=60)
    reservation.admit(half, free)
    with pytest.raises(Skip):
        MemoryReservation(tmp_path, "third", patience=0).admit(half, free)
    reservation.release()
    MemoryReservation(tmp_path, "third", patience=0).admit(half, free)


def test_what_could_never_fit_is_refused_at_once(tmp_path: Path, other_worker: int, free: Callable[[], int]) -> None:
    with pytest.raises(Skip, match="too large for the free memory"):
        MemoryReservation(tmp_path, "mine", patience=1000).admit(FREE_BYTES, free)


def test_a_notice_is_seen_by_anyone_who_knows_the_folder(tmp_path: Path) -> None:
    RunFolder(tmp_path).post("alone", "dump.json", "Torch.add.0.forward")
    assert RunFolder(tmp_path).is_posted("alone", Path("dump.json"), "Torch.add.0.forward")
    assert not RunFolder(tmp_path).is_posted("abandoned", "dump.json", "Torch.add.0.forward")
    assert not RunFolder(tmp_path).is_posted("alone", "other.json", "Torch.add.0.forward")


def test_the_watchdog_of_an_item_that_ended_is_called_off() -> None:
    # Were it not, it would end the process long before it says that it is still there.
    code = (
        "import time\n"
        "from pytest_msprobe.containment.deadline import deadline\n"
        "with deadline(1, watchdog=2):\n"
        "    pass\n"
        "time.sleep(3)\n"
        "print('still here')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here\n", "")


def test_a_process_with_thousands_of_open_files_hears_its_child() -> None:
    import resource
    import socket

    from pytest_msprobe.containment.run_in_process import Connection

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("the system lets no process open more than 1 024 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        one, other = socket.socketpair()
        here, there = Connection(one), Connection(other)
        assert one.fileno() > 1024
        assert not here.is_heard(0)
        there.send({"a": 1})
        assert here.is_heard(1)
        here.close()
        there.close()
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
