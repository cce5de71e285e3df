"""What is recorded when a recording is stopped, goes on and ends."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe_hooks import RecordingError, record


def tiny():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


def both_ways(folder, records, level, stop, debugger):
    """The records of two recordings of a step, that of the second stopped before the backward pass."""
    found = []
    for place, end in enumerate((None, stop)):
        model = tiny()
        debug = debugger(dump_path=folder / str(place), level=level)
        debug.start(model)
        loss = model(torch.ones(2, 4)).sum()
        if end is not None:
            getattr(debug, end)()
        loss.backward()
        debug.stop()
        debug.step()
        debug._finish()
        found.append(records(folder / str(place)))
    return found


@pytest.mark.parametrize("stop", ["stop", "forward_backward_dump_end"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_what_ran_before_stop_has_its_backward_records(tmp_path, records, debugger, level, stop):
    whole, stopped = both_ways(tmp_path, records, level, stop, debugger)
    gradients = [name for name in whole if "backward" in name or "parameters_grad" in name]
    assert gradients
    assert {name: stopped.get(name) for name in gradients} == {name: whole[name] for name in gradients}


def test_a_saved_variable_has_its_gradient_though_stop_came_first(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "d", level="debug")
    x = torch.ones(2, requires_grad=True)
    debug.save(x, "x")
    debug.stop()
    (x * 3).sum().backward()
    debug.step()
    assert records(tmp_path / "d", file="debug.json")["x_grad.0.debug"]["Max"] == 3.0


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_what_ran_after_stop_has_no_backward_records(tmp_path, records, debugger, level):
    model = tiny()
    debug = debugger(dump_path=tmp_path / "d", level=level)
    debug.start(model)
    model(torch.ones(2, 4)).sum().backward()
    debug.stop()
    before = list(records(tmp_path / "d"))
    model(torch.ones(2, 4)).sum().backward()
    debug.step()
    assert list(records(tmp_path / "d")) == before


def test_gradients_that_come_after_their_step_are_counted(tmp_path, records):
    with record(tmp_path / "d") as session:
        loss = torch.ones(2, requires_grad=True).sum()
        session.step()
        loss.backward()
    assert [name for name in records(tmp_path / "d") if "backward" in name] == []
    assert "missing backward records, as they came after step() had ended their step: 1" in str(session.summary)


def test_a_tensor_changed_during_a_pause_is_measured_anew(tmp_path, records):
    x = torch.ones(2)
    with record(tmp_path / "d") as session:
        torch.tanh(x)
        session.stop()
        x.data.fill_(5)
        session.start()
        torch.tanh(x)
    assert records(tmp_path / "d")["Torch.tanh.1.forward"]["input_args"][0]["Max"] == 5.0


def test_the_tensors_of_a_recording_are_there_when_stop_returns(tmp_path, records):
    with record(tmp_path / "d", task="tensor") as session:
        for size in range(200):
            torch.tanh(torch.ones(size + 1, 100))
        session.stop()
        files = sorted(path.name for path in (tmp_path / "d/step0/rank/dump_tensor_data").iterdir())
        named = [
            entry["data_name"]
            for call in records(tmp_path / "d").values()
            for entry in (*call["input_args"], *call["output"])
        ]
        assert files == sorted(named)


def test_a_recording_that_has_ended_does_not_start_again(tmp_path, records):
    with record(tmp_path / "d") as session:
        torch.tanh(torch.ones(2))
    with pytest.raises(RecordingError, match="this recording has ended"):
        session.start()
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["step0"]


def test_a_former_dump_is_refused_before_its_step_comes(tmp_path, debugger):
    with record(tmp_path / "d") as session:
        session.step()
        torch.tanh(torch.ones(2))
    debug = debugger(dump_path=tmp_path / "d", step=[1])
    with pytest.raises(RecordingError, match=r"step1/rank/dump\.json: the folder already has a dump"):
        debug.start()


def test_a_step_that_cannot_be_written_does_not_end_the_training(tmp_path, caplog, debugger):
    debug = debugger(dump_path=tmp_path / "d")
    debug.start()
    debug.stop()
    debug.step()
    (tmp_path / "d/step1").write_text("in the way")
    debug.start()
    torch.tanh(torch.ones(2))
    debug.stop()
    debug.step()
    (message,) = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert "step1/rank: cannot be created: Not a directory" in message
