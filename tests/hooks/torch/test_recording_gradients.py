from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks.record import record


def tensor(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).requires_grad_()


def maxima(elements):
    return [None if element is None else element["Max"] for element in elements]


def expected(gradients):
    return [None if gradient is None else gradient.max().item() for gradient in gradients]


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (torch.mul, [(3, 4), (3, 4)]),
        (torch.add, [(3, 4), (4,)]),
        (F.linear, [(2, 3, 4), (5, 4), (5,)]),
        (F.conv2d, [(1, 2, 5, 5), (3, 2, 2, 2), (3,)]),
        (F.cross_entropy, [(3, 4), (3, 4)]),
        (F.scaled_dot_product_attention, [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)]),
        (torch.addmm, [(3, 3), (3, 4), (4, 3)]),
        (lambda x, y: torch.einsum("ij,kj->ik", x, y), [(3, 4), (5, 4)]),
        (lambda x: F.softmax(x, -1), [(3, 4)]),
    ],
)
def test_the_gradients_of_all_inputs_are_those_that_autograd_computes(tmp_path, records, call, shapes):
    inputs = [tensor(*shape) for shape in shapes]
    output = call(*inputs)
    weight = torch.linspace(-1, 1, output.numel()).reshape(output.shape)
    want = torch.autograd.grad(output, inputs, weight)
    with record(tmp_path / "d"):
        call(*inputs).backward(weight)
    (body,) = (body for name, body in records(tmp_path / "d").items() if name.endswith("backward"))
    assert maxima(body["input"]) == [weight.max().item()]
    assert maxima(body["output"]) == pytest.approx(expected(want), rel=1e-6)


def test_a_result_that_is_changed_in_place_afterwards_has_its_gradient(tmp_path, records):
    x, weight, bias = tensor(2, 5, 3), tensor(4, 3), tensor(4)
    with record(tmp_path / "d"):
        # In torch 2.13 a view of what a product gave, in 2.15 none.
        output = F.linear(x, weight, bias)
        output.mul_(2).sum().backward()
    body = records(tmp_path / "d")["Functional.linear.0.backward"]
    assert [element["shape"] for element in body["input"]] == [[2, 5, 4]]
    assert maxima(body["input"]) == [2.0]
    assert [element["shape"] for element in body["output"]] == [[2, 5, 3], [4, 3], [4]]
    assert maxima(body["output"])[2] == 20.0


def test_a_view_of_a_view_shows_its_own_gradient(tmp_path, records):
    x, weight, bias = tensor(2, 5, 3), tensor(4, 3), tensor(4)
    with record(tmp_path / "d"):
        h = F.linear(x, weight, bias)
        q = h.view(10, 4)
        (q.sum() + h.mul(10).sum()).backward()
    found = records(tmp_path / "d")
    view = found["Tensor.view.0.backward"]
    assert (maxima(view["input"]), maxima(view["output"])) == ([1.0], [1.0])
    assert [element["shape"] for element in view["input"] + view["output"]] == [[10, 4], [2, 5, 4]]
    assert maxima(found["Functional.linear.0.backward"]["input"]) == [11.0]


def test_an_input_given_twice_gets_the_gradient_of_both_uses(tmp_path, records):
    x = tensor(3, 4)
    with record(tmp_path / "d"):
        torch.cat([x, x]).backward(torch.ones(6, 4))
    body = records(tmp_path / "d")["Torch.cat.0.backward"]
    assert maxima(body["output"]) == [2.0, 2.0]


def test_all_outputs_have_their_gradients(tmp_path, records):
    x = tensor(4, 4)
    with record(tmp_path / "d"):
        first, second = x.split(2)
        (first * 2).sum().backward(retain_graph=True)
    body = records(tmp_path / "d")["Tensor.split.0.backward"]
    assert maxima(body["input"]) in ([2.0, None], [2.0, 0.0])
    assert second.shape == (2, 4)


def test_a_residual_shows_only_what_each_call_contributes(tmp_path, records):
    x = tensor(3)
    with record(tmp_path / "d"):
        y = x * 1.0
        (torch.mul(y, 3.0) + y).backward(torch.ones(3))
    assert maxima(records(tmp_path / "d")["Torch.mul.0.backward"]["output"]) == [3.0]


def test_an_in_place_call_on_an_intermediate_has_its_gradient(tmp_path, records):
    x = tensor(3)
    with record(tmp_path / "d"):
        y = x * 1.0
        y.mul_(5.0)
        y.sum().backward()
    assert maxima(records(tmp_path / "d")["Tensor.mul_.0.backward"]["output"]) == [5.0]


def test_setting_an_item_has_a_backward_record(tmp_path, records):
    x, base = tensor(2), torch.zeros(4)
    with record(tmp_path / "d"):
        base[:2] = x
        base.sum().backward()
    assert maxima(records(tmp_path / "d")["Tensor.__setitem__.0.backward"]["output"]) == [1.0]


def test_backward_records_come_in_the_order_of_the_backward_pass(tmp_path, records):
    x = tensor(3)
    with record(tmp_path / "d"):
        torch.tanh(torch.sigmoid(x)).sum().backward()
    names = [name for name in records(tmp_path / "d") if name.endswith("backward")]
    assert names == ["Tensor.sum.0.backward", "Torch.tanh.0.backward", "Torch.sigmoid.0.backward"]


def test_a_second_backward_pass_is_counted_and_not_recorded_again(tmp_path, records):
    x = tensor(3)
    with record(tmp_path / "d") as session:
        y = torch.tanh(x).sum()
        y.backward(retain_graph=True)
        y.backward()
    assert len([name for name in records(tmp_path / "d") if name.endswith("backward")]) == 2
    assert session.summary.repeated == 2


def test_an_unused_output_does_not_hold_a_record_back(tmp_path, records):
    lstm = nn.LSTM(4, 4)
    with record(tmp_path / "d"):
        output, _ = lstm(tensor(2, 1, 4))
        output.sum().backward()
    body = records(tmp_path / "d")["VF.lstm.0.backward"]
    assert [element is None for element in body["input"]] == [False, True, True]
    assert not any(element is None for element in body["output"])


def test_a_call_of_which_one_input_gets_no_gradient_is_recorded(tmp_path, records):
    x, y = tensor(3), tensor(3)
    with record(tmp_path / "d"):
        torch.autograd.grad(torch.mul(torch.sin(x), torch.cos(y)).sum(), x)
    found = records(tmp_path / "d")
    assert "Torch.sin.0.backward" in found
    assert [element is None for element in found["Torch.mul.0.backward"]["output"]].count(False) >= 1


def test_no_backward_record_without_gradients(tmp_path, records):
    with record(tmp_path / "d"), torch.no_grad():
        torch.tanh(tensor(3))
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]


def test_recomputed_calls_have_backward_records(tmp_path, records):
    with record(tmp_path / "d"):
        checkpoint(torch.tanh, tensor(3), use_reentrant=False).sum().backward()
    assert {"Torch.tanh.0.backward", "Torch.tanh.1.backward"} & set(records(tmp_path / "d"))


def test_double_backward_works_while_recording(tmp_path):
    x = tensor(3)
    with record(tmp_path / "d") as session:
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), x)
    assert torch.allclose(second, 6 * x)
    assert session.summary.errors == {}


def test_a_call_that_returns_its_input_passes_its_gradient_on(tmp_path, records):
    with record(tmp_path / "d"):
        (torch.tanh(tensor(3)).to(torch.float32) * 2).sum().backward()
    found = records(tmp_path / "d")["Tensor.to.0.backward"]
    assert maxima(found["input"]) == maxima(found["output"]) == [2.0]
