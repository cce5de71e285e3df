"""A disk that fills up, wherever in a recording that happens: the recording ends, and the training goes on."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import RecordingError, record
from msprobe_hooks.dump.communication.jsonl import CommunicationLines, Line, read_lines
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.dump.writer import DumpWriter
from msprobe_hooks.record import open_session
from msprobe_hooks.recording.config import settings
from msprobe_hooks.recording.session import Session

_STEPS = 3

KINDS: list[dict[str, Any]] = [
    {"level": "mix"},
    {"level": "mix", "task": "tensor"},
    {"level": "mix", "task": "tensor", "tensor_files": "safetensors"},
]


def train(around: Callable[[int, nn.Module, Callable[[], None]], None]) -> list[Tensor]:
    """Train some steps, each made by ``around``; return what the parameters are then."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def make() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()

    for step in range(_STEPS):
        around(step, model, make)
    return [parameter.detach().clone() for parameter in model.parameters()]


def trained() -> list[Tensor]:
    return train(lambda step, model, make: make())


def trained_and_recorded(session: Session, before: Callable[[int], None] = lambda _: None) -> list[Tensor]:
    def around(step: int, model: nn.Module, make: Callable[[], None]) -> None:
        before(step)
        session.start(model)
        make()
        session.stop()
        session.step()

    parameters = train(around)
    session.close()
    return parameters


@contextmanager
def file_sizes() -> Iterator[Callable[[int], None]]:
    """Give a function that has the system refuse what would make a file larger than a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)


def require_whole(folder: Path) -> None:
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())
    for path in folder.rglob("dump.json"):
        read_dump(path)
    for path in folder.rglob("*.pt"):
        torch.load(path, weights_only=True)
    assert not list(folder.rglob("*.part"))


def require_one_message(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    reported = [one.message for one in caplog.records if one.message.startswith("recording stopped: ")]
    failure = session.recorder.failure
    assert reported == ([] if failure is None else [f"recording stopped: {failure}"])


@pytest.mark.parametrize("kind", KINDS, ids=["statistics", "pt", "containers"])
@pytest.mark.parametrize(
    "size", [0, *(pytest.param(size, marks=pytest.mark.slow) for size in (100, 200, 1000)), 10_000]
)
@pytest.mark.parametrize("first", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_file_that_cannot_grow_ends_the_recording_and_not_the_training(tmp_path, caplog, kind, size, first):
    session = open_session(settings(tmp_path / "d", **kind), None, "pytorch")
    with file_sizes() as limit:
        got = trained_and_recorded(session, lambda step: limit(size) if step == first else None)
    assert all(map(torch.equal, got, trained()))
    assert session.recorder.failure is not None
    assert str(session.summary).startswith(("recording stopped: ", "nothing was recorded: "))
    assert "File too large" in str(session.summary)
    require_one_message(session, caplog)
    require_whole(tmp_path / "d")


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Callable[[int], Path]]:
    """Give a function that mounts a file system of so many KiB; it takes root."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize("kind", KINDS, ids=["statistics", "pt", "containers"])
@pytest.mark.parametrize("size", [4, *(pytest.param(size, marks=pytest.mark.slow) for size in (8, 12, 16, 40, 64)), 24])
def test_a_small_disk_that_is_full_ends_the_recording_and_not_the_training(small_disk, caplog, kind, size):
    folder = small_disk(size) / "d"
    session = open_session(settings(folder, **kind), None, "pytorch")
    got = trained_and_recorded(session)
    assert all(map(torch.equal, got, trained()))
    assert session.recorder.failure is not None
    assert "No space left on device" in str(session.summary)
    require_one_message(session, caplog)
    require_whole(folder)


def test_a_disk_that_is_full_at_the_first_start_is_reported_where_the_context_ends(tmp_path):
    done = []

    def program() -> None:
        with record(tmp_path / "d"):
            done.append(torch.tanh(torch.ones(2)))

    with file_sizes() as limit:
        limit(0)
        with pytest.raises(RecordingError, match=r"dump\.json: cannot be written: File too large"):
            program()
    assert len(done) == 1


@pytest.mark.parametrize("size", [0, 10, 100])
def test_files_that_cannot_be_made_leave_nothing_that_a_later_run_would_be_refused_for(tmp_path, size):
    folder = tmp_path / recording_folder(0, None)
    with file_sizes() as limit:
        limit(size)
        with pytest.raises(RecordingError, match="File too large"):
            DumpWriter(folder, task="statistics", level="L1", keeps_tensors=True)
    assert not folder.exists()
    DumpWriter(folder, task="statistics", level="L1", keeps_tensors=True).close()
    require_whole(tmp_path)


def test_a_line_of_which_the_disk_takes_a_part_is_not_left_there(tmp_path):
    line = Line("began", "Distributed.all_reduce.0.forward", 1.0)
    lines = CommunicationLines(tmp_path)
    with file_sizes() as limit:
        limit(100)
        lines.write(line)
        with pytest.raises(RecordingError, match=os.strerror(errno.ENOSPC)):
            lines.write(line)
    lines.close()
    assert read_lines(tmp_path) == [line]
