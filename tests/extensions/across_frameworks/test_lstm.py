"""An LSTM of MindSpore's, which is many calls, next to the one call of PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import Dump, read_dump
from pytest_msprobe.extensions.across_frameworks.translation import Mappings, composed_runs
from tests.support.dumps.across_frameworks import composed_pair
from tests.support.dumps.across_frameworks import tensor as t
from tests.support.dumps.across_frameworks import torch_tensor as pt
from tests.support.dumps.dump_files import Json, forward, value, write_dump

LSTM = "Primitive.LSTM.LSTM.0.forward"
BACKWARD = LSTM.replace("for", "back")
SETTINGS = {"has_bias": True, "num_layers": 1}


def of_mindspore(*, batch_first: bool = True, w_hh: float = 4.0, **fields: Any) -> Json:
    """What ``nn.LSTM`` records of 6 steps: input 1, states 2, weights 3 and 4, biases 5 and 6, output 7."""
    x, y, dy, dx = (t(6, 2, n, at=at, **fields) for n, at in ((3, 1.0), (4, 7.0), (4, 8.0), (3, 9.0)))
    given = t(2, 6, 4, at=7.0, **fields) if batch_first else y
    state, flat = t(1, 2, 4, at=2), t(128, 1, 1, at=12)
    return {
        "Mint.tanh.0.forward": forward(t(2, 6, 3), output=[t(2, 6, 3)]),
        "Functional.zeros.0.forward": forward(value([1, 2, 4]), output=[state]),
        "Tensor.__add__.0.forward": forward(t(16, at=5), t(16, at=6), output=[t(16, at=11)]),
        "Tensor.view.0.forward": forward(t(16, 3, at=3), value(-1), output=[t(48, 1, 1, at=3)]),
        "Tensor.view.1.forward": forward(t(16, 4, at=w_hh), value(-1), output=[t(64, 1, 1, at=w_hh)]),
        "Tensor.view.2.forward": forward(t(16, at=11), value(-1), output=[t(16, 1, 1, at=11)]),
        "Primitive.concat.Concat.0.forward": forward(
            value([t(48, 1, 1, at=3), t(64, 1, 1, at=w_hh), t(16, 1, 1, at=11)]), output=[flat]
        ),
        LSTM: forward(x, state, state, flat, output=[y, t(1, 2, 4, at=13), t(1, 2, 4, at=14)])
        | {"details": {"settings": SETTINGS}},
        "Tensor.view.3.forward": forward(t(1, 2, 4, at=13), value([1, 2, 4]), output=[t(1, 2, 4, at=13)]),
        "Tensor.astype.0.forward": forward(given, value("Float32"), output=[given]),
        BACKWARD: {"input": [dy, None, None], "output": [dx, t(128, 1, 1, at=20)]},
        "Tensor.view.2.backward": {"input": [t(16, 1, 1, at=15)], "output": [t(16, at=15)]},
        "Tensor.view.1.backward": {"input": [t(64, 1, 1, at=16)], "output": [t(16, 4, at=16)]},
        "Tensor.view.0.backward": {"input": [t(48, 1, 1, at=17)], "output": [t(16, 3, at=17)]},
        "Tensor.__add__.0.backward": {"input": [t(16, at=15)], "output": [t(16, at=18), t(16, at=19)]},
    }


def of_pytorch(*, batch_first: bool = True) -> Json:
    rows = (2, 6) if batch_first else (6, 2)
    states, biases = [pt(1, 2, 4, at=2), pt(1, 2, 4, at=2)], [pt(16, at=5), pt(16, at=6)]
    weights = [pt(16, 3, at=3), pt(16, 4, at=4), *biases]
    gradients = [pt(16, 3, at=17), pt(16, 4, at=16), pt(16, at=18), pt(16, at=19)]
    return {
        "Torch.tanh.0.forward": forward(pt(2, 6, 3), output=[pt(2, 6, 3)]),
        "VF.lstm.0.forward": forward(
            pt(*rows, 3), value(states), value(weights), value(True), value(1),
            output=[pt(*rows, 4, at=7), pt(1, 2, 4, at=13), pt(1, 2, 4, at=14)],
        ),
        "VF.lstm.0.backward": {"input": [pt(*rows, 4, at=8), None, None], "output": [pt(*rows, 3, at=9), *gradients]},
    }  # fmt: skip


def runs(tmp_path: Path, ours: Json, theirs: Json, **parents: Any) -> tuple[Dump, Dump]:
    target = write_dump(tmp_path / "target", ours, framework="mindspore", **parents)
    return read_dump(target), read_dump(write_dump(tmp_path / "golden", theirs, framework="pytorch"))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("is_reversed", [True, False])
def test_an_lstm_is_one_call_forward_and_backward(tmp_path: Path, batch_first: bool, is_reversed: bool) -> None:
    target, golden = runs(tmp_path, of_mindspore(batch_first=batch_first), of_pytorch(batch_first=batch_first))
    pair = composed_pair(golden, target) if is_reversed else composed_pair(target, golden)
    assert {name: pair.compare(name).outcome for name in pair.orders} == dict.fromkeys(pair.orders, "pass")
    assert len(pair.orders) == 3
    assert pair.unmatched == 0


def test_a_changed_weight_is_a_differing_input_of_the_lstm(tmp_path: Path) -> None:
    pair = composed_pair(*runs(tmp_path, of_mindspore(w_hh=4.5), of_pytorch()))
    rows = {row.place: row.outcome for row in pair.compare(LSTM).rows if row.outcome == "fail"}
    assert rows == {"input.2.1": "fail"}


def test_elements_are_those_of_the_tensors_from_before_they_were_turned(tmp_path: Path) -> None:
    ours = of_mindspore(data_name="turned.npy")
    ours["Mint.tanh.0.forward"] = forward(t(2, 6, 5), output=[t(2, 6, 3, data_name="as it was.npy")])
    target, golden = runs(tmp_path, ours, of_pytorch())
    composed, _, _ = composed_runs(target, golden, Mappings())
    assert composed.body(LSTM)["input_args"][0]["data_name"] == "as it was.npy"


def test_an_lstm_whose_elements_are_nowhere_in_pytorchs_order_stays_what_it_is(tmp_path: Path) -> None:
    ours = {name: body for name, body in of_mindspore(data_name="turned.npy").items() if "tanh" not in name}
    target, golden = runs(tmp_path, ours, of_pytorch())
    composed, _, names = composed_runs(target, golden, Mappings())
    assert list(composed.records) == list(target.records)
    assert names == {}


@pytest.mark.parametrize("shape", [None, 3, [2], [], "6, 2"])
@pytest.mark.parametrize("group", ["input_args", "output"])
@pytest.mark.parametrize("record", [LSTM, "Tensor.view.0.forward", "Tensor.astype.0.forward"])
def test_a_malformed_shape_costs_the_whole_and_no_more(tmp_path: Path, record: str, group: str, shape: Any) -> None:
    ours = of_mindspore()
    ours[record][group][0] = ours[record][group][0] | {"shape": shape}
    target, golden = runs(tmp_path, ours, of_pytorch())
    composed_runs(target, golden, Mappings())


def test_an_lstm_whose_weights_come_from_elsewhere_stays_what_it_is(tmp_path: Path) -> None:
    ours = {name: body for name, body in of_mindspore().items() if not name.startswith("Primitive.concat")}
    target, golden = runs(tmp_path, ours, of_pytorch())
    composed, _, _ = composed_runs(target, golden, Mappings())
    assert list(composed.records) == list(ours)


def test_a_run_that_calls_no_lstm_leaves_the_calls_as_they_are(tmp_path: Path) -> None:
    theirs = {name: body for name, body in of_pytorch().items() if "lstm" not in name}
    target, golden = runs(tmp_path, of_mindspore(), theirs)
    assert composed_runs(target, golden, Mappings())[0] is target


def test_an_lstm_is_in_the_module_that_is_the_layer(tmp_path: Path) -> None:
    kernel, layer = "Cell.lstm.rnn._DynamicLSTMCPUGPU.forward.0", "Cell.lstm.LSTM.forward.0"
    parents = {LSTM: kernel, kernel: layer, "Tensor.view.3.forward": layer}
    target, golden = runs(tmp_path, of_mindspore(), of_pytorch(), parents=parents)
    composed, _, _ = composed_runs(target, golden, Mappings())
    assert composed.surroundings.parents.of_call(LSTM) == layer
