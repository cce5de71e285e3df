"""Which calls are recorded, where they stand, and what of the program stays as it was."""

from __future__ import annotations

import json
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.record import record
from msprobe_hooks.recording.recorder import Recorder

X = torch.arange(16.0).reshape(4, 4) / 10


def test_recording_leaves_the_identity_of_functions_alone(tmp_path):
    before = F.gelu, torch.add, torch.Tensor.add
    with record(tmp_path / "d"):
        assert (F.gelu, torch.add, torch.Tensor.add) == before
        assert F.gelu is before[0]


def test_nested_calls_are_recorded_once_at_the_outermost_level(tmp_path, records):
    attention = nn.MultiheadAttention(4, 1)
    with record(tmp_path / "d"):
        attention(X[None], X[None], X[None])
    names = list(records(tmp_path / "d"))
    assert "Functional.multi_head_attention_forward.0.forward" in names
    assert not [name for name in names if "linear" in name or "softmax" in name]


def test_a_call_that_raises_leaves_a_record_and_recording_goes_on(tmp_path, records):
    with record(tmp_path / "d") as session:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.mm(X, X[:3])
        torch.mm(X, X)
    found = records(tmp_path / "d")
    assert "shapes cannot be multiplied" in found["Torch.mm.0.forward"]["exception"]
    assert "exception" not in found["Torch.mm.1.forward"]
    assert session.recorder.summary.raised == 1


def test_threads_that_begin_while_recording_are_recorded(tmp_path, records):
    with record(tmp_path / "d"):
        worker = threading.Thread(target=lambda: torch.tanh(X))
        worker.start()
        worker.join()
    assert "Torch.tanh.0.forward" in records(tmp_path / "d")


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_a_checkpoint_recomputes_is_recorded_and_marked(tmp_path, records, use_reentrant):
    x = X.clone().requires_grad_()
    with record(tmp_path / "d"):
        checkpoint(torch.tanh, x, use_reentrant=use_reentrant).sum().backward()
    found = records(tmp_path / "d")
    assert not found["Torch.tanh.0.forward"]["is_recompute"]
    assert found["Torch.tanh.1.forward"]["is_recompute"]


def test_the_stack_of_a_call_ends_in_the_users_code(tmp_path):
    with record(tmp_path / "d"):
        F.relu(X)
    ((names, frames),) = json.loads((tmp_path / "d/step0/rank/stack.json").read_text()).values()
    assert names == ["Functional.relu.0.forward"]
    assert "test_recording_calls.py" in frames[0]
    assert "F.relu(X)" in frames[0]


def test_equal_stacks_are_written_once(tmp_path):
    with record(tmp_path / "d"):
        for _ in range(3):
            torch.tanh(X)
    ((names, _),) = json.loads((tmp_path / "d/step0/rank/stack.json").read_text()).values()
    assert len(names) == 3


def test_a_recorder_inside_another_records_too(tmp_path, records):
    with record(tmp_path / "outer"):
        X + X
        with record(tmp_path / "inner"):
            X * X
    assert list(records(tmp_path / "outer")) == ["Tensor.__add__.0.forward", "Tensor.__mul__.0.forward"]
    assert list(records(tmp_path / "inner")) == ["Tensor.__mul__.0.forward"]


def test_nothing_is_seen_after_the_end(tmp_path):
    with record(tmp_path / "d") as session:
        X + X
    X + X
    assert session.recorder.summary.calls == 1
    assert torch._C._len_torch_function_stack() == 0


def test_a_mode_entered_inside_survives_the_end_of_recording(tmp_path):
    session = record(tmp_path / "d")
    session.__enter__()
    with torch.device("meta"):
        session.__exit__(None, None, None)
        assert torch.empty(1).is_meta
    assert not torch.empty(1).is_meta


def test_the_dump_is_readable_while_it_is_being_written(tmp_path, monkeypatch):
    # However slow the machine is, the timer writes nothing before the records do.
    monkeypatch.setattr(Recorder, "flush_seconds", 3600.0)
    with record(tmp_path / "d") as session:
        for _ in range(1500):
            torch.tanh(X)
        dump = read_dump(tmp_path / "d/step0/rank/dump.json")
        assert len(dump.records) == 1000
    assert session.recorder.summary.calls == 1500


def test_two_recordings_at_once_see_the_same_calls(tmp_path, records):
    x = torch.ones(2, requires_grad=True)
    with record(tmp_path / "outer"), record(tmp_path / "inner"):
        F.softmax(2.0 + x, dim=-1).sum().backward()
    inner = records(tmp_path / "inner")
    assert "Tensor.__radd__.0.forward" in inner
    assert list(records(tmp_path / "outer")) == list(inner)


def test_operators_have_no_backward_records(tmp_path, records):
    x = torch.ones(2, requires_grad=True)
    with record(tmp_path / "d", "aten"):
        # The graph of a gradient's graph is made while operators are seen.
        (gradient,) = torch.autograd.grad(torch.tanh(x).sum(), x, create_graph=True)
        gradient.sum().backward()
    found = records(tmp_path / "d")
    assert found
    assert not [name for name in found if name.endswith(".backward")]


def test_a_custom_call_whose_arguments_cannot_be_looked_at_is_not_recorded(tmp_path, records):
    class Hostile(dict):
        def items(self):
            raise RuntimeError("go away")

    class Library:
        __name__ = "library"

        @staticmethod
        def double(options):
            return torch.ones(2) * 2

    with record(tmp_path / "d") as session:
        session.register_custom_api(Library, "double", "Mine")
        result = Library.double(Hostile(a=torch.ones(2)))
        session.restore_custom_api(Library, "double")
        torch.tanh(torch.ones(2))
    assert result.tolist() == [2.0, 2.0]
    assert dict(session.summary.errors) == {"Mine.double: RuntimeError: go away": 1}
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_checkpointing_that_stops_early_is_no_error_and_leaves_the_call_its_result(tmp_path, records, level):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def gradients():
        model.zero_grad()
        checkpoint(model, X.clone().requires_grad_(), use_reentrant=False).sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    want = gradients()
    with record(tmp_path / "d", level, model=model) as session:
        got = gradients()
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
    assert session.summary.raised == 0
    again = [call for call in records(tmp_path / "d").values() if call.get("is_recompute") and "parameters" not in call]
    assert len(again) == 3
    assert all(call["output"] and "exception" not in call for call in again)
