from __future__ import annotations

import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.recording.filters import NameFilter


def names_of(tmp_path, records, **options):
    x = torch.ones(3, requires_grad=True)
    with record(tmp_path / "d", **options) as session:
        torch.tanh(torch.sigmoid(torch.relu(x))).sum().backward()
    return list(records(tmp_path / "d")), session.summary


def test_a_list_keeps_names_that_contain_an_entry(tmp_path, records):
    names, summary = names_of(tmp_path, records, list=["sigmoid", "tanh.0.backward"])
    assert names == ["Torch.sigmoid.0.forward", "Torch.tanh.0.backward", "Torch.sigmoid.0.backward"]
    assert summary.removed["list"] > 0


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("Torch.sigmiod", "list: no record's name contains 'Torch.sigmiod'; did you mean 'Torch.sigmoid'?"),
        ("sigmiod", "list: no record's name contains 'sigmiod'; did you mean 'sigmoid'?"),
        ("conv2d", "list: no record's name contains 'conv2d'"),
    ],
)
def test_the_summary_names_an_entry_of_the_list_that_no_name_contains(tmp_path, records, entry, line):
    _, summary = names_of(tmp_path, records, list=["tanh", entry])
    assert summary.unmatched == [line]
    assert f"; {line}" in str(summary)


def test_a_list_that_removes_all_says_what_was_meant(tmp_path):
    with record(tmp_path / "d", list=["Torch.tahn"]) as session:
        torch.tanh(torch.ones(3))
    said = "nothing was recorded: all records were removed, 1 by list; list: no record's name contains 'Torch.tahn'"
    assert str(session.summary) == f"{said}; did you mean 'Torch.tanh'?"


def test_a_scope_is_a_range_with_both_ends(tmp_path, records):
    names, _ = names_of(tmp_path, records, scope=["Torch.sigmoid.0.forward", "Tensor.sum.0.backward"])
    assert names == [
        "Torch.sigmoid.0.forward",
        "Torch.tanh.0.forward",
        "Tensor.sum.0.forward",
        "Torch.ones_like.0.forward",
        "Tensor.sum.0.backward",
    ]


def test_data_mode_chooses_direction_and_side(tmp_path, records):
    names, _ = names_of(tmp_path, records, data_mode=["forward", "input"])
    assert all(name.endswith("forward") for name in names)
    body = records(tmp_path / "d")["Torch.tanh.0.forward"]
    assert "input_args" in body
    assert "output" not in body


def test_backward_only_records_no_forward(tmp_path, records):
    names, _ = names_of(tmp_path, records, data_mode=["backward"])
    assert names[0] == "Tensor.sum.0.backward"
    assert all(name.endswith("backward") for name in names)


def test_risk_level_focus_leaves_out_what_only_moves_data(tmp_path, records):
    x = torch.ones(4)
    with record(tmp_path / "d", risk_level="FOCUS"):
        torch.tanh(x.reshape(2, 2).transpose(0, 1))
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]


def test_an_unlisted_rank_records_nothing_and_says_so(tmp_path):
    with record(tmp_path / "d", rank=[3]) as session:
        torch.tanh(torch.ones(2))
    assert "1 by rank" in str(session.summary)


def test_steps_of_a_context_go_on_by_themselves(tmp_path, records):
    with record(tmp_path / "d", step=[1, 2]) as session:
        for _ in range(4):
            torch.tanh(torch.ones(2))
            session.step()
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["step1", "step2"]
    assert list(records(tmp_path / "d", 2)) == ["Torch.tanh.0.forward"]


def test_a_window_of_a_module_closes_with_it():
    names = NameFilter((), ("Module.block",))
    assert not names.admits("Torch.add.0.forward")
    assert names.enter_module("Module.block.Block.forward.0")
    assert names.admits("Torch.add.1.forward")
    names.leave_module("Module.block.Block.forward.0")
    assert not names.admits("Torch.add.2.forward")
    assert names.removed["list"] == 2


@pytest.mark.parametrize(
    ("entry", "left_out"),
    [
        ("Tensor.t", ["Tensor.t.0.forward", "Tensor.t.0.backward"]),
        ("t", ["Tensor.t.0.forward", "Torch.t.0.forward", "Tensor.t.0.backward"]),
        ("linalg.*", ["Torch.linalg.norm.0.forward"]),
        ("*.Dropout", ["Module.a.0.Dropout.forward.0", "Module.a.0.Dropout.parameters_grad.0"]),
        ("Module.a.*", ["Module.a.0.Dropout.forward.0", "Module.a.0.Dropout.parameters_grad.0"]),
        ("nothing", []),
    ],
)
def test_what_is_excluded_is_left_out_in_both_directions_and_counted(entry, left_out):
    names = ["Tensor.t.0.forward", "Tensor.to.0.forward", "Torch.t.0.forward", "Torch.linalg.norm.0.forward"]
    names += ["Module.a.0.Dropout.forward.0", "Tensor.t.0.backward", "Module.a.0.Dropout.parameters_grad.0"]
    wanted = NameFilter((), (), (entry,))
    assert [name for name in names if not wanted.admits(name)] == left_out
    assert wanted.removed["exclude"] == len(left_out)
