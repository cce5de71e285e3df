"""A training of MindSpore that is recorded makes the same steps as one that is not, whatever is recorded or fails."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn, ops  # noqa: E402

from msprobe_hooks import ConfigError  # noqa: E402
from msprobe_hooks.dump.reader import read_dump  # noqa: E402
from msprobe_hooks.record import open_session  # noqa: E402
from msprobe_hooks.recording.config import LEVELS, TASKS, settings  # noqa: E402
from msprobe_hooks.recording.session import Session  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


class Net(nn.Cell):  # type: ignore[misc]
    """Cells in a cell, of which one normalises and one holds a primitive."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.SequentialCell(nn.Dense(4, 4), nn.LayerNorm((4,)))
        self.second = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.second(ops.tanh(self.first(x)))


class Training:
    """A training that can be made a second time."""

    def __init__(self) -> None:
        ms.set_seed(0)
        self.model = Net()
        self.optimizer = nn.Adam(self.model.trainable_params(), learning_rate=0.1)
        self.gradients = ms.value_and_grad(
            lambda x: ops.square(self.model(x)).sum(), None, self.model.trainable_params()
        )

    def step(self) -> bytes:
        loss, gradients = self.gradients(Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)))
        self.optimizer(gradients)
        return bytes(loss.asnumpy().tobytes())

    def outcome(self, loss: bytes) -> list[bytes]:
        return [loss, *(one.asnumpy().tobytes() for one in self.model.get_parameters())]


def plain() -> list[bytes]:
    training = Training()
    return training.outcome(training.step())


def recorded(session: Session, break_it: Callable[[], None] = lambda: None) -> list[bytes]:
    training = Training()
    session.start(training.model)
    break_it()
    loss = training.step()
    session.stop()
    session.step()
    session.close()
    return training.outcome(loss)


def opened(folder: Path, task: str, level: str) -> Session:
    return open_session(settings(folder, task=task, level=level), None, "mindspore")


def is_offered(task: str, level: str) -> bool:
    # Level L2 is of graphs, which a card compiles.
    try:
        opened(Path("d"), task, level)
    except ConfigError:
        return False
    return level != "L2"


OFFERED = [(task, level) for task in TASKS for level in LEVELS if is_offered(task, level)]
FAST = [("statistics", "mix"), ("overflow_check", "mix")]


@pytest.mark.parametrize(
    ("task", "level"),
    [pytest.param(*one, marks=[] if one in FAST else pytest.mark.slow) for one in OFFERED],
)
def test_a_recorded_step_has_the_bits_of_a_plain_one(tmp_path: Path, task: str, level: str) -> None:
    session = opened(tmp_path / "d", task, level)
    assert recorded(session) == plain()
    assert session.summary.errors == {}
    assert session.recorder.failure is None


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("this part is broken")


PARTS = ["differentiated", "elements", "emit", "inputs", "is_recompute", "quiet", "accepts_gradients", "watch"]


@pytest.mark.parametrize(("task", "level"), [("statistics", "mix"), ("overflow_check", "mix")])
@pytest.mark.parametrize(
    "part",
    [pytest.param(one, marks=[] if one == "elements" else pytest.mark.slow) for one in PARTS],
)
def test_a_recorder_that_breaks_is_reported_and_the_step_has_its_bits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
    task: str,
    level: str,
) -> None:
    session = opened(tmp_path / "d", task, level)
    got = recorded(session, lambda: monkeypatch.setattr(session.recorder, part, broken))
    assert got == plain()
    reported = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(reported) == len(set(reported))
    assert any("this part is broken" in message for message in reported)
    assert "this part is broken" in str(session.summary)


def test_the_settings_of_a_primitive_are_in_no_other_record(tmp_path: Path) -> None:
    session = opened(tmp_path / "d", "overflow_check", "mix")
    model = nn.SequentialCell(nn.Dense(2, 2), nn.ReLU())
    session.start(model)
    model(Tensor(np.ones((2, 2), np.float32)))
    taken = session.recorder.elements("Mint.exp.0.forward")
    session.close()
    assert taken.details == {}


_HANGING = """
import os, signal, sys, time
import mindspore
from mindspore import Tensor, mint, nn
from pathlib import Path
from msprobe_hooks import record
from msprobe_hooks.recording.recorder import Recorder

Recorder.flush_seconds = 0.05
mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
with record("d", framework="mindspore", model=net, level="mix", task="tensor"):
    mindspore.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(mint.ones((2, 2)))
    (dump,) = Path("d/step0").rglob("dump.json")
    give_up = time.monotonic() + 300
    while "Cell.0.Dense.parameters_grad.0" not in dump.read_text():
        if time.monotonic() > give_up:
            sys.exit("the last record is not in the file")
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_process_that_hangs_and_is_killed_leaves_all_records(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _HANGING]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (path,) = (tmp_path / "d").rglob("dump.json")
    assert "Cell.0.Dense.parameters_grad.0" in read_dump(path).records
