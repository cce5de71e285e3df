"""Calls of PyTorch in another precision: what they return, what they write to, and what is left alone."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import msprobe_hooks
from msprobe_hooks import ConfigError, fix
from msprobe_hooks.dump.names import split_direction


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, requires_grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_(requires_grad)


def raised(function, *tensors: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a function computes in a dtype, rounded to that of its first tensor."""
    return function(*(tensor.detach().to(dtype) for tensor in tensors)).to(tensors[0].dtype)


def cumulated(x: torch.Tensor) -> torch.Tensor:
    """A computation that differs in the two precisions: it rounds each of its steps."""
    return torch.cumsum(x, 0)


def test_a_named_call_is_computed_in_float32_and_returns_its_own_dtype():
    x = normal(999)
    plain = cumulated(x)
    with fix("Torch.cumsum", to="float32"):
        fixed = cumulated(x)
    assert fixed.dtype is torch.bfloat16
    assert torch.equal(fixed, raised(cumulated, x))
    assert torch.equal(plain, cumulated(x))


def test_float64_raises_what_is_in_float32():
    a, b = normal(40, 50, dtype=torch.float32), normal(50, 60, dtype=torch.float32)
    with fix("Torch.matmul", to="float64"):
        fixed = torch.matmul(a, b)
    assert torch.equal(fixed, raised(torch.matmul, a, b, dtype=torch.float64))


def test_the_backward_pass_runs_in_the_same_precision():
    x, grad = normal(64, 32, requires_grad=True), normal(64, 32)
    with fix("Torch.softmax"):
        y = torch.softmax(x, -1)
    y.backward(grad)
    wide = x.detach().float().requires_grad_()
    torch.softmax(wide, -1).backward(grad.float())
    assert torch.equal(x.grad, wide.grad.to(torch.bfloat16))


def test_a_call_is_named_by_its_number_as_the_recording_counts(tmp_path):
    def calls(x: torch.Tensor) -> list[torch.Tensor]:
        linear = nn.Linear(8, 8, dtype=torch.bfloat16)
        return [x + x, torch.cumsum(x, 0), F.relu(x), 2 * x, torch.cumsum(x + 1, 0), linear(x.clone()), x @ x.T]

    with msprobe_hooks.record(tmp_path / "dump") as session:
        calls(normal(8, 8))
    recorded = set(msprobe_hooks.dump.reader.read_dump(session.summary.folders[0] / "dump.json").records)
    for record in recorded:
        with fix(record, to="float64") as fixed:
            calls(normal(8, 8))
        assert fixed.unmet == []
    name = "Torch.cumsum.1.forward"
    assert name in recorded
    with fix(split_direction(name)[0]) as fixed:
        calls(normal(8, 8))
    assert fixed.raised == {"Torch.cumsum": 1}


def test_calls_are_counted_alike_next_to_a_recording(tmp_path):
    x = normal(8)
    with msprobe_hooks.record(tmp_path / "dump") as session, fix("Tensor.__add__.1") as fixed:
        x + x
        x + x
    names = [*msprobe_hooks.dump.reader.read_dump(session.summary.folders[0] / "dump.json").records]
    assert names == ["Tensor.__add__.0.forward", "Tensor.__add__.1.forward"]
    assert fixed.raised == {"Tensor.__add__": 1}


def test_a_call_in_place_writes_to_its_own_memory_and_returns_it():
    x, y = normal(64), normal(64)
    expected = raised(lambda a, b: a.addcdiv_(b, a.exp() + 3), x, y)
    view, pointer = x[:], x.data_ptr()
    with fix("Tensor.addcdiv_"):
        result = x.addcdiv_(y, raised(lambda a: a.float().exp() + 3, x).float())
    assert result is x
    assert x.data_ptr() == pointer
    assert torch.equal(view, x)
    assert expected.shape == x.shape


def test_a_tensor_given_by_out_is_written_and_returned():
    a, b, out = normal(16, 99), normal(99, 16), torch.zeros(16, 16, dtype=torch.bfloat16)
    with fix("Torch.mm"):
        assert torch.mm(a, b, out=out) is out
    assert torch.equal(out, raised(torch.mm, a, b))


def test_a_call_writes_to_no_other_argument_though_one_like_it_was_given_the_same_tensor_twice():
    a, b, w = normal(4), normal(4), normal(4, requires_grad=True)
    with fix("Tensor.mul_") as fixed:
        a.mul_(a)
        version = w._version
        b.mul_(w)
    assert fixed.raised == {"Tensor.mul_": 2}
    assert w._version == version


def test_assigning_to_an_element_changes_the_tensor():
    x = normal(4)
    with fix("Tensor.__setitem__") as fixed:
        x[1] = 7
    assert x[1] == 7
    assert fixed.raised == {"Tensor.__setitem__": 1}


def test_statistics_that_a_call_updates_unseen_are_updated():
    x = normal(64, 4)
    plain, fixed = (nn.BatchNorm1d(4, dtype=torch.bfloat16) for _ in range(2))
    wide = nn.BatchNorm1d(4)
    wide(x.float())
    with fix("Functional.batch_norm"):
        fixed(x)
    assert torch.equal(fixed.running_mean, wide.running_mean.to(torch.bfloat16))
    assert not torch.equal(fixed.running_mean, plain.running_mean)


def test_an_optimizer_on_lists_of_tensors_is_raised():
    tensors = [normal(5), normal(6)]
    expected = [raised(lambda t: t.mul_(1.001), tensor) for tensor in tensors]
    with fix("Torch._foreach_mul_"):
        torch._foreach_mul_(tensors, 1.001)
    assert all(map(torch.equal, tensors, expected))


def test_results_of_several_tensors_keep_their_kind_and_dtypes():
    with fix("Torch.topk"):
        top = torch.topk(normal(9), 2)
    assert (top.values.dtype, top.indices.dtype) == (torch.bfloat16, torch.int64)
    assert type(top) is torch.return_types.topk


def test_autocast_does_not_cast_the_call_back():
    x, w = normal(8, 200, dtype=torch.float32), normal(4, 200, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = F.linear(x, w)
        with fix("Functional.linear"):
            fixed = F.linear(x, w)
    assert fixed.dtype is torch.bfloat16
    assert torch.equal(fixed, F.linear(x, w).to(torch.bfloat16))
    assert not torch.equal(fixed, plain)


def test_complex_tensors_are_raised():
    a = torch.complex(normal(9, 9, dtype=torch.float32), normal(9, 9, dtype=torch.float32))
    with fix("Torch.matmul", to="float64"):
        fixed = torch.matmul(a, a)
    assert torch.equal(fixed, raised(torch.matmul, a, a, dtype=torch.complex128))


def test_integer_arguments_stay_as_they_are():
    table, index = normal(10, 3), torch.tensor([1, 2])
    with fix("Functional.embedding") as fixed:
        assert torch.equal(F.embedding(index, table), table[index])
    assert fixed.raised == {"Functional.embedding": 1}


def test_a_call_that_returns_a_view_returns_that_view():
    x = normal(4, 4)
    with fix("*") as fixed:
        x.transpose(0, 1).zero_()
    assert not x.any()
    assert ("Tensor.transpose", "it returns its argument's memory and computes nothing") in fixed.left


def test_a_call_that_draws_random_numbers_draws_those_that_it_would_have():
    x = normal(99)
    torch.manual_seed(1)
    plain = F.dropout(x), torch.rand(3)
    torch.manual_seed(1)
    with fix("Functional.dropout") as fixed:
        drawn = F.dropout(x), torch.rand(3)
    assert all(map(torch.equal, drawn, plain))
    assert fixed.left == {("Functional.dropout", "it draws random numbers"): 1}


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_call_in_a_checkpoint_is_raised_again_when_it_is_made_again(early_stop):
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.softmax(x, -1), -1)

    def gradient(*names: str) -> torch.Tensor:
        x = normal(8, 32, requires_grad=True)
        with fix(*names), set_checkpoint_early_stop(early_stop):
            y = checkpoint(twice, x, use_reentrant=False) + checkpoint(twice, 2 * x, use_reentrant=False)
            y.backward(normal(8, 32))
        return x.grad

    def expected() -> torch.Tensor:
        x = normal(8, 32, requires_grad=True)
        with fix("Torch.softmax.1"):
            y = twice(x) + twice(2 * x)
        y.backward(normal(8, 32))
        return x.grad

    assert torch.equal(gradient("Torch.softmax.1"), expected())
    assert not torch.equal(gradient("nothing"), expected())


def test_an_error_of_the_program_is_its_own():
    with fix("Torch.matmul"), pytest.raises(RuntimeError, match="cannot be multiplied") as raised:
        torch.matmul(normal(3, 4), normal(3, 4))
    assert raised.value.__context__ is None


def test_the_tensors_of_a_call_that_is_left_as_it_was_are_not_kept():
    x = normal(4)
    known = weakref.ref(x)
    with fix("Tensor.masked_select") as fixed:
        x.masked_select(x > 0)
        del x
        gc.collect()
        assert known() is None
    assert fixed.left == {("Tensor.masked_select", "its result is not known in advance"): 1}


def test_modes_of_the_program_see_the_call_once_and_in_the_other_precision():
    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((str(func), args[0].dtype))
            return func(*args, **(kwargs or {}))

    a = normal(3, 3)
    with Seeing(), fix("Torch.mm"):
        torch.mm(a, a)
    assert seen == [("aten.mm.default", torch.float32)]


def test_a_wildcard_names_calls_of_any_type():
    x = normal(4)
    with fix("*.cumsum") as fixed:
        torch.cumsum(x, 0)
        x.cumsum(0)
    assert fixed.raised == {"Torch.cumsum": 1, "Tensor.cumsum": 1}


def test_names_that_were_never_called_are_reported(caplog):
    with caplog.at_level(logging.WARNING, "msprobe_hooks"), fix("Torch.cumsum", "Torch.matmull") as fixed:
        torch.cumsum(normal(4), 0)
    assert fixed.unmet == ["Torch.matmull"]
    assert "Torch.matmull was never called" in caplog.text


def test_a_name_that_was_never_called_is_reported_with_the_closest_one_that_was():
    with fix("Torch.cumsumm", "Functional.softmx.0") as fixed:
        torch.cumsum(normal(4), 0)
        torch.nn.functional.softmax(normal(4), 0)
    assert "Torch.cumsumm was never called; did you mean 'Torch.cumsum'?" in str(fixed)
    assert "Functional.softmx.0 was never called; did you mean 'Functional.softmax'?" in str(fixed)


def test_everything_is_as_before_at_the_end_even_after_an_error():
    x = normal(999)
    plain = cumulated(x)
    with pytest.raises(KeyError), fix("Torch.cumsum"):
        raise KeyError
    assert torch.equal(cumulated(x), plain)


@pytest.mark.parametrize(
    ("names", "to", "text"),
    [
        ((), "float32", "a list of names of APIs"),
        (("",), "float32", "a list of names of APIs"),
        (("Torch.mm",), "bfloat16", "allowed: float32, float64, cpu"),
    ],
)
def test_wrong_arguments_are_reported_before_anything_runs(names, to, text):
    with pytest.raises(ConfigError, match=text), fix(*names, to=to):
        pass


def test_a_call_that_cannot_be_looked_at_runs_as_it_is(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("this part is broken")

    x = normal(999)
    monkeypatch.setattr("msprobe_hooks.extensions.fix.torch_upcast.Raising.plan", broken)
    with fix("Torch.cumsum") as fixed:
        assert torch.equal(cumulated(x), torch.cumsum(x, 0))
    assert "observing it raised RuntimeError" in str(fixed)


def test_a_call_of_which_it_cannot_be_known_whether_it_is_named_runs_as_it_is(monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    x = normal(999)
    monkeypatch.setattr("msprobe_hooks.extensions.fix.run_plan.Names.admit", broken)
    with fix("Torch.cumsum") as fixed:
        assert torch.equal(cumulated(x), torch.cumsum(x, 0))
    assert "observing it raised OSError" in str(fixed)


def test_what_is_traced_is_not_fixed():
    x = torch.ones(4, 8)
    with fix("*", to="float64") as fixed:
        make_fx(lambda y: (torch.relu(y) * 2).sum())(x)
    assert (fixed.raised, fixed.left) == ({}, {})
