"""What a recording has of calls that are fed."""

from __future__ import annotations

import json

import pytest
import torch

from msprobe_hooks import feed
from tests.support.trainings.fed import Model, batch, inputs_of_last, recording


def test_the_record_of_a_fed_call_says_where_its_inputs_came_from(golden, tmp_path, records):
    model = Model(broken=True)
    with recording(tmp_path / "target", model, level="mix"), feed(golden, ["layers.2"]):
        model(batch(0))
    found = records(tmp_path / "target")
    assert found["Module.layers.2.Block.forward.0"]["details"]["fed"] == {
        "dump": str(golden / "step0" / "rank" / "dump.json"),
        "record": "Module.layers.2.Block.forward.0",
        "places": ["input.0"],
    }
    assert [name for name, body in found.items() if "fed" in body.get("details", {})] == [
        "Module.layers.2.Block.forward.0"
    ]
    written = tmp_path / "target/step0/rank/dump_tensor_data/Module.layers.2.Block.forward.0.input.0.pt"
    assert torch.equal(torch.load(written), inputs_of_last(0)[0])


def test_a_recording_keeps_what_was_fed_and_what_it_replaced(golden, tmp_path):
    with recording(tmp_path / "target", Model(broken=True)) as session, feed(golden, ["layers.2"]) as fed:
        session.model(batch(0))
    files = tmp_path / "target/step0/rank/dump_tensor_data"
    passed = torch.load(files / "Module.layers.2.Block.forward.0.passed.input.0.pt")
    assert torch.equal(passed, torch.load(files / "Module.layers.1.Block.forward.0.output.0.pt"))
    right = inputs_of_last(0)[0]
    greatest = ((passed - right).abs().max() / right.abs().max()).item()
    assert fed.differences == {"layers.2 input.0 (x)": pytest.approx(greatest)}


def test_a_recording_keeps_the_names_of_arguments_that_were_passed_by_position(tmp_path, records):
    model = Model()
    with recording(tmp_path / "run", model):
        model.layers[0](batch(0), 2.0)
        model.layers[1](batch(0), scale=2.0)
    found = records(tmp_path / "run")
    assert found["Module.layers.0.Block.forward.0"]["details"] == {"positional": {"names": ["x", "scale"]}}
    assert "details" not in found["Module.layers.1.Block.forward.0"]


def test_feeding_adds_no_calls_to_a_recording(golden, tmp_path, records):
    for name, modules in (("fed", ["*"]), ("once", ["layers.2"])):
        model = Model()
        with recording(tmp_path / name, model, level="mix"), feed(golden, modules):
            model(batch(0, requires_grad=True)).sum().backward()
    model = Model()
    with recording(tmp_path / "plain", model, level="mix"):
        model(batch(0, requires_grad=True)).sum().backward()
    assert (
        sorted(records(tmp_path / "fed")) == sorted(records(tmp_path / "once")) == sorted(records(tmp_path / "plain"))
    )


def test_the_recorded_text_is_json_that_msprobe_reads(golden, tmp_path):
    model = Model()
    with recording(tmp_path / "target", model), feed(golden, ["*"]):
        model(batch(0))
    content = json.loads((tmp_path / "target/step0/rank/dump.json").read_text())
    assert content.keys() >= {"task", "level", "framework", "dump_data_dir", "data"}
