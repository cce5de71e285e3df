from __future__ import annotations

import json
import os
import resource
import signal
import stat

import pytest
import torch

from msprobe_hooks import RecordingError, record
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.writer import JsonStream, make_folder


def test_the_file_is_complete_after_every_append(tmp_path):
    path = tmp_path / "a.json"
    stream = JsonStream(path, b'{"data": {\n', b"\n}}\n")
    assert json.loads(path.read_text()) == {"data": {}}
    for place in range(3):
        stream.append([(f"r{place}", {"x": place})])
        assert list(json.loads(path.read_text())["data"]) == [f"r{i}" for i in range(place + 1)]
    assert stream.size == path.stat().st_size
    stream.close()


def test_appending_nothing_changes_nothing(tmp_path):
    stream = JsonStream(tmp_path / "a.json", b"{", b"}")
    stream.append([])
    stream.append([("x", 1)])
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}


def test_an_existing_dump_is_not_overwritten(tmp_path):
    with record(tmp_path / "d"):
        torch.tanh(torch.ones(2))
    before = (tmp_path / "d/step0/rank/dump.json").read_bytes()
    with (
        pytest.raises(RecordingError, match="the folder already has a dump, which is not overwritten"),
        record(tmp_path / "d"),
    ):
        pass
    assert (tmp_path / "d/step0/rank/dump.json").read_bytes() == before
    assert torch._C._len_torch_function_stack() == 0


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=r"file/d: cannot be created: Not a directory"):
        record(tmp_path / "file" / "d").__enter__()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RecordingError, match="Permission denied"):
        record(tmp_path / "d").__enter__()


def test_files_are_private_to_the_user_and_group(tmp_path):
    with record(tmp_path / "d"):
        torch.tanh(torch.ones(2))
    path = tmp_path / "d/step0/rank/dump.json"
    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o027 == 0


def test_a_full_disk_ends_recording_and_not_the_training(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    done = 0

    def train():
        nonlocal done
        with record(tmp_path / "d"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, limits[1]))
            for _ in range(5000):
                torch.tanh(torch.ones(2))
                done += 1

    try:
        with pytest.raises(RecordingError, match=r"dump\.json: cannot be written: File too large"):
            train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert done == 5000
    assert 0 < len(read_dump(tmp_path / "d/step0/rank/dump.json").records) < 5000


def test_a_killed_process_leaves_a_readable_dump(forked, tmp_path):
    path = tmp_path / "d/step0/rank/dump.json"
    script = (
        "import os, signal, threading, time, torch\n"
        "from msprobe_hooks import record\n"
        "def kill():\n"
        f"    while os.stat({str(path)!r}).st_size < 1_000_000: time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"with record({str(tmp_path / 'd')!r}):\n"
        "    threading.Thread(target=kill).start()\n"
        "    while True: torch.tanh(torch.ones(2))\n"
    )
    assert forked.run(script, tmp_path).returncode == -signal.SIGKILL
    dump = read_dump(path)
    assert len(dump.records) >= 1000
    assert dump.forward(list(dump.records)[-1]).output


def test_waiting_tensors_are_written_by_the_end(tmp_path, records):
    x = torch.arange(6.0).reshape(2, 3)
    with record(tmp_path / "d", task="tensor"):
        y = torch.cat([x, x.t().reshape(2, 3)])
        y.zero_()
    body = records(tmp_path / "d")["Torch.cat.0.forward"]
    folder = tmp_path / "d/step0/rank/dump_tensor_data"
    assert body["input_args"][0][1]["data_name"] == "Torch.cat.0.forward.input.0.1.pt"
    stored = torch.load(folder / body["output"][0]["data_name"], weights_only=True)
    assert torch.equal(stored, torch.cat([x, x.t().reshape(2, 3)]))
    assert len(list(folder.iterdir())) == len({p.name for p in folder.iterdir()})


def test_tensors_are_kept_for_listed_names_only(tmp_path):
    with record(tmp_path / "d", tensor_list=["tanh"]):
        torch.tanh(torch.ones(2))
        torch.sigmoid(torch.ones(2))
    names = sorted(path.name for path in (tmp_path / "d/step0/rank/dump_tensor_data").iterdir())
    assert names == ["Torch.tanh.0.forward.input.0.pt", "Torch.tanh.0.forward.output.0.pt"]


def test_memory_does_not_grow_with_the_number_of_records(forked, tmp_path):
    script = (
        "import resource, torch\n"
        "from msprobe_hooks import record\n"
        "x = torch.ones(2)\n"
        f"with record({str(tmp_path / 'd')!r}):\n"
        "    for _ in range(25000): torch.tanh(x)\n"
        "    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    for _ in range(18000): torch.tanh(x)\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first)\n"
    )
    done = forked.run(script, tmp_path)
    assert int(done.stdout) < 4096, done.stderr  # KiB; 18 000 records are 9 MB of text


def test_all_folders_that_are_made_are_as_open_as_msprobes(tmp_path):
    former = os.umask(0o022)
    try:
        make_folder(tmp_path / "step0" / "rank0" / "dump_tensor_data")
    finally:
        os.umask(former)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o750}
    assert len(made) == 3
