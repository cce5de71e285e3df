"""A training that is recorded makes the same steps as one that is not, whatever is recorded and whatever fails."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import ConfigError, PrecisionDebugger
from msprobe_hooks.installed_extensions import extensions, implementations
from msprobe_hooks.record import open_session
from msprobe_hooks.recording.config import LEVELS, TASKS, settings
from msprobe_hooks.recording.session import Session
from msprobe_hooks.torch.session import Phases, TorchSession

#: What comes of a step: the loss, the parameters after it, and the numbers that are drawn next.
Outcome = list[Tensor]


class Net(nn.Module):
    """Modules in modules, one of which draws numbers, a parameter that two modules share, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.LayerNorm(4))
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first[0].weight
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Training:
    """A training that can be made a second time."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)

    def step(self) -> Tensor:
        x = torch.randn(3, 4, requires_grad=True)
        loss = self.model(x).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def outcome(self, losses: list[Tensor]) -> Outcome:
        parameters = [one.detach().clone() for one in self.model.parameters()]
        drawn = torch.tensor([random.random(), np.random.rand()])
        return [*losses, *parameters, torch.rand(2), drawn]


def same_bits(one: Outcome, other: Outcome) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.fixture
def plain() -> Callable[[int], Outcome]:
    """Make some steps without a recording."""

    def run(steps: int = 1) -> Outcome:
        seed()
        training = Training()
        return training.outcome([training.step() for _ in range(steps)])

    return run


def seed() -> None:
    random.seed(0)
    np.random.seed(0)


#: Tasks and levels that extensions record.
OF_EXTENSIONS = {"overflow_check": "overflow", "nan_check": "overflow", "compiled": "compiled_graphs"}


def is_offered(task: str, level: str) -> bool:
    if not {OF_EXTENSIONS[word] for word in (task, level) if word in OF_EXTENSIONS} <= extensions().keys():
        return False
    # Level L2 is a card's, whose library dumps the kernels.
    try:
        settings("d", task=task, level=level)
    except ConfigError:
        return False
    return level != "L2"


OFFERED = [(task, level) for task in TASKS for level in LEVELS if is_offered(task, level)]


def recorded(session: Session, training: Training, steps: int = 1) -> Outcome:
    losses = []
    for _ in range(steps):
        session.start(training.model)
        losses.append(training.step())
        session.stop()
        session.step()
    session.close()
    return training.outcome(losses)


@pytest.mark.parametrize(("task", "level"), OFFERED)
def test_a_recorded_step_has_the_bits_of_a_plain_one(tmp_path, plain, task, level):
    session = open_session(settings(tmp_path / "d", task=task, level=level), None, "pytorch")
    seed()
    got = recorded(session, Training())
    assert same_bits(got, plain())
    assert session.summary.errors == {}
    assert session.recorder.failure is None


@pytest.fixture
def debugger() -> Iterator[type[PrecisionDebugger]]:
    yield PrecisionDebugger
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()


@pytest.mark.parametrize("task", [task for tasks in implementations("TASKS") for task in tasks])
def test_a_step_under_an_instrument_has_the_bits_of_a_plain_one(tmp_path, plain, debugger, capsys, task):
    seed()
    training = Training()
    debug = debugger(dump_path=tmp_path / "d", task=task)
    if task == "grad_probe":
        debug.monitor(training.model)
    debug.start(training.model)
    loss = training.step()
    debug.stop()
    debug.step()
    debug._finish()
    assert same_bits(training.outcome([loss]), plain())
    assert "could not" not in capsys.readouterr().err


#: What observers ask of a recorder, and what can fail on a device, for want of memory or with a tensor of one's own.
PARTS = [
    *("differentiated", "elements", "emit", "fetch", "forget", "inputs", "is_recompute", "quiet", "summarise"),
    *("accepts_gradients", "watch"),
]


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("this part is broken")


@pytest.mark.parametrize(
    ("task", "level"),
    [
        ("statistics", "mix"),
        pytest.param("tensor", "L0", marks=pytest.mark.slow),
        *([pytest.param("overflow_check", "mix", marks=pytest.mark.slow)] if "overflow" in extensions() else []),
    ],
)
@pytest.mark.parametrize("part", PARTS)
def test_a_recorder_that_breaks_is_reported_and_the_step_has_its_bits(
    tmp_path, plain, monkeypatch, caplog, part, task, level
):
    session = open_session(settings(tmp_path / "d", task=task, level=level), None, "pytorch")
    seed()
    training = Training()
    session.start(training.model)
    monkeypatch.setattr(session.recorder, part, broken)
    loss = training.step()
    session.stop()
    session.step()
    session.close()
    assert same_bits(training.outcome([loss]), plain())
    reported = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(reported) == len(set(reported))
    if part not in UNASKED.get(task, ()):
        assert any("this part is broken" in message for message in reported)
        assert "this part is broken" in str(session.summary)


#: What a task does not ask for on a host: an overflow check measures what it writes, and it writes nothing here.
UNASKED = {"overflow_check": {"summarise"}, "tensor": set(), "statistics": {"summarise"}}


@pytest.mark.parametrize("name", ["begin", "end"])
def test_an_observer_that_breaks_is_reported_and_the_step_has_its_bits(tmp_path, plain, monkeypatch, name):
    session = open_session(settings(tmp_path / "d", level="mix"), None, "pytorch")
    monkeypatch.setattr(Phases, name, broken)
    seed()
    got = recorded(session, Training())
    monkeypatch.undo()
    for observer in session._observers:
        observer.end()
    assert same_bits(got, plain())
    (problem,) = session.summary.errors
    assert "Phases" in problem
    assert "this part is broken" in problem
    assert torch._C._len_torch_function_stack() == 0


def test_a_model_whose_modules_cannot_be_listed_ends_the_recording_alone(tmp_path, plain, monkeypatch, caplog):
    session = open_session(settings(tmp_path / "d", level="L0"), None, "pytorch")
    monkeypatch.setattr(TorchSession, "hooks_on", broken)
    seed()
    got = recorded(session, Training())
    assert same_bits(got, plain())
    assert [record.message for record in caplog.records] == [
        "recording stopped: RuntimeError: this part is broken",
    ]


def test_mistakes_of_the_user_are_raised_when_the_recording_starts(tmp_path):
    session = open_session(settings(tmp_path / "d", level="L0"), None, "pytorch")
    with pytest.raises(ConfigError, match="level 'L0' needs model="):
        session.start()


def test_a_saved_variable_that_cannot_be_recorded_is_reported(tmp_path, monkeypatch):
    session = open_session(settings(tmp_path / "d", level="debug"), None, "pytorch")
    session.start()
    x = torch.ones(2, requires_grad=True)
    monkeypatch.setattr(session.recorder, "written_elements", broken)
    session.save(x, "x")
    monkeypatch.undo()
    session.save(x, "y")
    monkeypatch.setattr(session.recorder, "written_elements", broken)
    (x * 3).sum().backward()
    session.close()
    assert x.grad.tolist() == [3.0, 3.0]
    assert set(session.summary.errors) == {
        "x: RuntimeError: this part is broken",
        "y_grad: RuntimeError: this part is broken",
    }


def test_what_fails_many_times_is_logged_once(tmp_path, monkeypatch, caplog):
    session = open_session(settings(tmp_path / "d"), None, "pytorch")
    session.start()
    monkeypatch.setattr(session.recorder, "emit", broken)
    for _ in range(20):
        torch.tanh(torch.ones(2))
    session.close()
    assert [record.message for record in caplog.records if "tanh" in record.message] == [
        "not recorded: Torch.tanh.0.forward: RuntimeError: this part is broken"
    ]
    assert session.summary.errors == {"Torch.tanh.0.forward: RuntimeError: this part is broken": 20}


def test_gradients_that_cannot_be_added_leave_no_record_and_the_backward_pass_goes_on(tmp_path, monkeypatch, records):
    session = open_session(settings(tmp_path / "d"), None, "pytorch")
    session.start()
    monkeypatch.setattr("msprobe_hooks.torch.gradients._sum", broken)
    x = torch.ones(2, requires_grad=True)
    # The two gradients of one tensor are added.
    torch.mul(x, x).sum().backward()
    session.close()
    assert x.grad.tolist() == [2.0, 2.0]
    assert "Torch.mul.0.backward" not in records(tmp_path / "d")
    assert list(session.summary.errors) == ["Torch.mul.0.backward: RuntimeError: this part is broken"]
