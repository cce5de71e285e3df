"""Arguments that are fed: gradients, containers, keywords, dtypes and shapes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe_hooks import FeedError, feed
from tests.support.trainings.fed import Block, Model, Pair, assert_equal, batch, inputs_of, inputs_of_last, recording


def test_gradients_pass_through_a_fed_input_unchanged(golden):
    model = Model(broken=True)
    x = batch(0, requires_grad=True)
    with feed(golden, ["layers.2"]):
        model(x).sum().backward()
    last = inputs_of_last(0)[0].requires_grad_()
    Model().layers[2](last).sum().backward()
    before = Model(broken=True)
    own = batch(0, requires_grad=True)
    before.layers[1](before.layers[0](own)).backward(last.grad)
    assert torch.equal(x.grad, own.grad)
    assert torch.equal(model.layers[0].fc.weight.grad, before.layers[0].fc.weight.grad)


def test_a_module_may_write_over_a_fed_input(golden):
    class Writing(Block):
        def forward(self, x, scale=1.0, state=None):
            return super().forward(x.mul_(1), scale, state)

    model = Model(broken=True)
    model.layers[2].__class__ = Writing
    with feed(golden, ["layers.2"]):
        model(batch(0, requires_grad=True)).sum().backward()
    assert_equal(inputs_of(model), inputs_of_last(0))


def test_tensors_in_keyword_arguments_and_containers_are_fed(tmp_path):
    def run(model: Model, value: float) -> None:
        model(batch(0), scale=0.5, state={"pair": Pair(torch.full((2, 4), value), torch.zeros(1)), "more": [1, None]})

    right, wrong = Model(), Model(broken=True)
    with recording(tmp_path / "golden", right):
        run(right, 1.0)
    with feed(tmp_path / "golden", ["layers.1"]) as fed:
        run(wrong, 2.0)
    _, scale, state = wrong.layers[1].received[0]
    assert scale == 0.5
    assert type(state["pair"]) is Pair
    assert torch.equal(state["pair"].left, torch.ones(2, 4))
    assert state["more"] == [1, None]
    assert not fed.is_partial


def test_an_argument_is_found_by_its_name_where_one_run_passes_it_by_position(tmp_path):
    right, wrong = Block(), Block()
    with recording(tmp_path / "golden", [nn.ModuleDict({"one": right})]):
        right(x=batch(0), scale=0.5)
    with feed(tmp_path / "golden", ["one"], model=nn.ModuleDict({"one": wrong})) as fed:
        wrong(batch(1), 0.5)
    assert_equal([wrong.received[0][0]], [batch(0)])
    assert not fed.is_partial


def test_a_number_that_differs_is_kept_and_named(golden, tmp_path):
    right, model = Model(), Model()
    with recording(tmp_path / "scaled", right):
        right(batch(0), scale=0.25)
    with feed(tmp_path / "scaled", ["layers.2"]) as fed:
        model(batch(0), scale=0.5)
    assert model.layers[2].received[0][1] == 0.5
    assert "not fed: layers.2 kwargs.scale is 0.5 here, and 0.25 in the dump" in str(fed)


def test_another_dtype_is_converted_to_the_one_of_the_program_and_named(golden):
    model = Model(broken=True).bfloat16()
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0).bfloat16())
    assert_equal(inputs_of(model), [x.bfloat16() for x in inputs_of_last(0)])
    assert "converted: layers.2 input.0 (x) from float32 to bfloat16" in str(fed)


@pytest.mark.parametrize("options", [{}, {"tensor_files": "safetensors"}])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_narrow_dtypes_come_back_bit_by_bit(tmp_path, dtype, options):
    class Widens(nn.Module):
        def forward(self, x):
            self.received = x
            return x.float()

    model = nn.ModuleDict({"one": Widens()})
    x = batch(0).to(dtype)
    with recording(tmp_path / "golden", model, **options):
        model["one"](x)
    with feed(tmp_path / "golden", ["one"], model=model):
        model["one"](torch.zeros(2, 4).to(dtype))
    assert torch.equal(model["one"].received.view(torch.uint8), x.view(torch.uint8))


def test_another_shape_is_an_error_that_names_module_argument_and_both_shapes(golden):
    model = Model()
    with (
        feed(golden, ["layers.2"]),
        pytest.raises(FeedError, match=r"layers.2 input.0 \(x\) has the shape \(3, 4\) in this run and \(2, 4\) in "),
    ):
        model(torch.ones(3, 4))


def test_another_kind_of_dtype_is_an_error(tmp_path):
    model = nn.ModuleDict({"one": nn.Identity()})
    with recording(tmp_path / "golden", model):
        model["one"](torch.ones(2))
    with (
        feed(tmp_path / "golden", ["one"], model=model),
        pytest.raises(FeedError, match="has the dtype int64 in this run and float32"),
    ):
        model["one"](torch.ones(2, dtype=torch.int64))
