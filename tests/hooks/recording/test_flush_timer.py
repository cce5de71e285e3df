"""What was recorded is in the files soon, also where the program then does nothing, and is killed."""

from __future__ import annotations

import gc
import signal
import threading
from pathlib import Path

import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.dump.communication.jsonl import read_lines
from msprobe_hooks.dump.containers import SUFFIX
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.record import open_session
from msprobe_hooks.recording.config import settings
from msprobe_hooks.recording.elements import TensorEntry
from msprobe_hooks.recording.tensor_entry import Statistics
from tests.support.gloo import run_ranks
from tests.support.requirements import require

# Records a step, then does nothing but look whether the last record is in the file, and is killed.
_HANGING = """
import os, signal, sys, time, torch
from pathlib import Path
from msprobe_hooks import record
from msprobe_hooks.recording.recorder import Recorder

Recorder.flush_seconds = 0.05
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
options = {options}
last, tensors = {last!r}, {tensors}
with record("d", model=model, **options) as session:
    if options["level"] == "debug":
        session.save(torch.ones(2), "x")
    else:
        model(torch.randn(2, 4)).sum().backward()
    (dump,) = Path("d/step0/rank").glob("d*.json")
    give_up = time.monotonic() + 300
    whole = lambda: [path for path in Path("d").rglob("dump_tensor_data/*") if path.suffix != ".part"]
    while last not in dump.read_text() or len(whole()) < tensors:
        assert time.monotonic() < give_up, "the last record is not in the file"
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("options", "last", "tensors"),
    [
        ({"level": "L1"}, "Functional.linear.0.backward", 0),
        pytest.param({"level": "L0"}, "Module.0.Linear.parameters_grad.0", 0, marks=pytest.mark.slow),
        ({"level": "mix", "task": "tensor"}, "Module.0.Linear.parameters_grad.0", 20),
        pytest.param(
            {"level": "mix", "task": "tensor", "tensor_files": "safetensors"},
            "Module.0.Linear.parameters_grad.0",
            1,
            marks=pytest.mark.slow,
        ),
        pytest.param({"level": "aten", "async_dump": True}, "Aten.sum.default.0.forward", 0, marks=pytest.mark.slow),
        pytest.param({"level": "debug"}, "x.0.debug", 0, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_hangs_and_is_killed_leaves_all_records(forked, tmp_path, options, last, tensors):
    done = forked.run(_HANGING.format(options=options, last=last, tensors=tensors), tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = tmp_path / "d/step0/rank"
    if options["level"] != "debug":
        dump = read_dump(folder / "dump.json")
        assert last in dump.records
    # The kill may come while the next file is being written.
    stored = [path for path in (folder / "dump_tensor_data").glob("*") if path.suffix != ".part"] if tensors else []
    assert len(stored) >= tensors
    if options.get("tensor_files"):
        assert all(path.suffix == SUFFIX for path in stored)


def test_records_are_not_written_again_when_the_recording_goes_on(tmp_path, records, monkeypatch):
    session = open_session(settings(tmp_path / "d", level="L1"), None, "pytorch")
    session.recorder.flush_seconds = 0.001
    session.start()
    for _ in range(300):
        torch.tanh(torch.ones(2))
    session.stop()
    session.start()
    torch.tanh(torch.ones(2))
    session.close()
    assert list(records(tmp_path / "d")) == [f"Torch.tanh.{number}.forward" for number in range(301)]
    assert session.summary.calls == 301


def test_children_that_are_forked_while_records_are_written_neither_hang_nor_write(forked, tmp_path):
    script = (
        "import os, torch\n"
        "from msprobe_hooks import record\n"
        "from msprobe_hooks.recording.recorder import Recorder\n"
        "Recorder.flush_seconds = 0.0001\n"
        "with record('d', task='tensor') as session:\n"
        "    for step in range(10):\n"
        "        torch.tanh(torch.ones(2))\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            torch.sigmoid(torch.ones(2, requires_grad=True)).sum().backward()\n"
        "            session.close()\n"
        "            os._exit(0)\n"
        "        assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = forked.run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    names = list(read_dump(tmp_path / "d/step0/rank/dump.json").records)
    assert names == [f"Torch.tanh.{number}.forward" for number in range(10)]


def timers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "msprobe flush timer"]


def test_the_thread_ends_with_the_recording(tmp_path):
    with record(tmp_path / "d") as session:
        session.step()
        assert len(timers()) == 1
    assert timers() == []


def test_the_thread_ends_with_a_recording_that_no_one_closed(tmp_path):
    session = open_session(settings(tmp_path / "d", level="debug"), None, "pytorch")
    session.recorder.flush_seconds = 0.01
    session.start()
    (thread,) = timers()
    del session
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_numbers_on_a_device_are_fetched_by_the_next_record_and_by_no_other_thread(tmp_path, records):
    session = open_session(settings(tmp_path / "d"), None, "pytorch")
    session.start()
    recorder = session.recorder
    torch.tanh(torch.ones(2))
    fetching: list[int] = []
    recorder.fetch_numbers = lambda waiting: fetching.append(threading.get_ident())
    recorder.fill(TensorEntry("torch.Tensor", "torch.float32", [2]), Statistics(is_waiting=True))
    timer = threading.Thread(target=recorder._flush_in_time)
    timer.start()
    timer.join()
    assert records(tmp_path / "d") == {}
    torch.tanh(torch.ones(2))
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward", "Torch.tanh.1.forward"]
    assert fetching == [threading.get_ident()]
    session.close()


# Rank 1 leaves out the last communication, for which rank 0 waits.
_HANGING_RANKS = """
import os, signal, sys, threading, time, torch, torch.distributed as dist
from pathlib import Path
from msprobe_hooks import record
from msprobe_hooks.recording.recorder import Recorder

Recorder.flush_seconds = 0.05
rank, folder = int(sys.argv[1]), Path(sys.argv[2])
store = dist.FileStore(str(folder / "store"), 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)

def end():
    dumps = [folder / f"d/step0/rank{one}/dump.json" for one in range(2)]
    give_up = time.monotonic() + 300
    while not all("Torch.tanh.2.forward" in dump.read_text() for dump in dumps) and time.monotonic() < give_up:
        time.sleep(0.01)
    store.add("seen", 1)
    while store.add("seen", 0) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

with record(folder / "d"):
    for step in range(3):
        x = torch.tanh(torch.ones(2))
        if step == 2:
            threading.Thread(target=end).start()
            if rank == 1:
                time.sleep(600)
        dist.all_reduce(x)
"""


@pytest.mark.slow
def test_the_step_that_hangs_is_in_the_files_of_every_rank(tmp_path: Path) -> None:
    require(torch.distributed.is_available(), "torch.distributed")
    ended = run_ranks(_HANGING_RANKS, 2, tmp_path)
    assert [code for code, _ in ended] == [-9, -9], ended
    for rank in range(2):
        folder = tmp_path / f"d/step0/rank{rank}"
        names = list(read_dump(folder / "dump.json").records)
        assert [name for name in names if "tanh" in name] == [f"Torch.tanh.{number}.forward" for number in range(3)]
        begun = [line.record for line in read_lines(folder) if line.event == "began"]
        assert begun == [f"Distributed.all_reduce.{number}.forward" for number in range(3 - rank)]


def test_a_recording_that_is_closed_within_its_own_lock_does_not_hang(tmp_path):
    def record_and_close() -> None:
        session = open_session(settings(tmp_path / "d"), None, "pytorch")
        session.recorder.flush_seconds = 0.001
        session.start()
        torch.tanh(torch.ones(2))
        # As a signal handler does that comes while a record is taken.
        with session.recorder.lock:
            session.close()

    # A recording observes the thread that starts it, until that thread closes it.
    recording = threading.Thread(target=record_and_close, daemon=True)
    recording.start()
    recording.join(60)
    assert not recording.is_alive()
