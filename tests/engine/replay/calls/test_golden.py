"""The golden run computes the whole chain in raised precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.golden import baseline_side, golden_side
from pytest_msprobe.engine.replay.calls.side import run_backward, run_forward

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
FLOAT8 = [getattr(torch, name) for name in dir(torch) if name.startswith("float8")]


def draw(*shape: int, dtype: torch.dtype = f32) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).add(0.5).to(dtype)


def golden(function: Any, *args: Any, operation: str = "", **kwargs: Any) -> Any:
    arguments = Arguments(args, kwargs, frozenset())
    name = operation or function.__name__
    side = golden_side(name, arguments)
    return run_forward(function, arguments, side, operation=name, record="r", differentiate=False).output


@pytest.mark.parametrize(
    ("dtypes", "raised"),
    [
        ((f16, f16), f32),
        ((bf16, bf16), f32),
        ((f16, bf16), f32),
        ((f32, f32), f64),
        ((f64, f64), f64),
        ((f16, f32), f64),
        ((bf16, f64), f64),
        ((torch.complex64, torch.complex64), torch.complex128),
        ((torch.complex64, f16), torch.complex128),
        ((torch.complex32, torch.complex32), torch.complex64),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_operands_are_raised_together(dtypes: tuple[torch.dtype, torch.dtype], raised: torch.dtype) -> None:
    first, second = (draw(3, dtype=dtype) for dtype in dtypes)
    assert golden(torch.add, first, second).dtype is raised
    assert golden(torch.add, first, other=second).dtype is raised
    assert golden(torch.stack, [first, second]).dtype is raised


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_is_decoded_exactly(dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    raised = golden(torch.clone, codes)
    assert raised.dtype is f32
    back = raised.to(dtype).view(torch.uint8)
    number = ~raised.isnan()
    assert torch.equal(back[number], codes.view(torch.uint8)[number])


def test_the_chain_is_not_rounded_on_its_way() -> None:
    x, weight, bias = draw(5, 300, dtype=f16), draw(4, 300, dtype=f16), draw(4, dtype=f16)
    exact = F.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(golden(F.linear, x, weight, bias).double(), exact, rtol=1e-5, atol=0)
    narrow = golden(F.layer_norm, draw(3, 50), (50,), draw(50))
    torch.testing.assert_close(narrow, F.layer_norm(draw(3, 50).double(), (50,), draw(50).double()), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("source", "asked", "raised"), [(f16, f32, f64), (f32, f16, f64), (f16, bf16, f32), (bf16, f64, f64)], ids=str
)
def test_a_dtype_that_is_asked_for_is_raised_too(source: torch.dtype, asked: torch.dtype, raised: torch.dtype) -> None:
    x = draw(3, 9, dtype=source)
    assert golden(F.softmax, x, dim=-1, dtype=asked).dtype is raised
    assert golden(torch.sum, x, 1, dtype=asked).dtype is raised


def test_integers_bools_and_their_dtypes_stay() -> None:
    x = torch.arange(6)
    assert golden(torch.add, x, 1).dtype is torch.int64
    assert golden(torch.sum, x, dtype=torch.int32).dtype is torch.int32
    assert golden(torch.eq, x, x).dtype is torch.bool


@pytest.mark.parametrize("function", [torch.true_divide, torch.atan2])
def test_integers_that_become_floats_become_float64(function: Any) -> None:
    x = torch.arange(1, 8)
    assert golden(function, x, 3 + x).dtype is f64
    assert torch.get_default_dtype() is f32


def test_factories_make_raised_floats() -> None:
    assert golden(torch.linspace, 0, 1, 7, dtype=f32).dtype is f64
    assert golden(torch.arange, 0, 1, 0.1, dtype=f16).dtype is f32
    assert golden(torch.arange, 5).dtype is torch.int64


@pytest.mark.parametrize("name", ["half", "bfloat16", "float", "double"])
def test_casts_round_once_to_what_they_promise(name: str) -> None:
    x = draw(40)
    cast = getattr(x, name)()
    assert torch.equal(golden(getattr(torch.Tensor, name), x).to(cast.dtype), cast)


def test_type_as_takes_the_value_and_leaves_the_rounding_to_the_judge() -> None:
    x, like = draw(40), draw(1, dtype=f16)
    assert torch.equal(golden(torch.Tensor.type_as, x, like).to(f16), x.half())


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8])
def test_a_view_of_the_bytes_is_of_the_recorded_bytes(dtype: torch.dtype) -> None:
    x = draw(4, 8, dtype=f16)
    assert torch.equal(golden(torch.Tensor.view, x, dtype), x.view(dtype))
    assert golden(torch.Tensor.view, x, 8, 4).dtype is f32


def test_what_is_about_the_dtype_itself_keeps_it() -> None:
    x = torch.tensor([1.0, float("inf")])
    assert torch.equal(golden(torch.nextafter, x, x + 1), torch.nextafter(x, x + 1))
    assert torch.equal(golden(torch.nan_to_num, x.half()), torch.tensor([1.0, 65504.0]).half())
    aten = golden(torch.ops.aten.nextafter.default, x, x + 1, operation="nextafter")
    assert torch.equal(aten, torch.nextafter(x, x + 1))


def test_recorded_arguments_stay_as_they_are() -> None:
    x = draw(3, dtype=f16)
    golden(torch.Tensor.mul_, x, 5.0)
    assert torch.equal(x, draw(3, dtype=f16))


def test_the_baseline_computes_in_the_recorded_dtypes() -> None:
    arguments = Arguments((draw(3, 4, dtype=f16),), {"dim": 1, "dtype": bf16}, frozenset())
    run = run_forward(torch.sum, arguments, baseline_side(None), operation="sum", record="r", differentiate=False)
    assert run.output.dtype is bf16


def test_gradients_are_raised_with_everything_else() -> None:
    x, arriving = draw(5, 7, dtype=bf16), draw(5, 7, dtype=bf16)
    arguments = Arguments((x, -1), {}, frozenset({"args.0"}))
    side = golden_side("softmax", arguments)
    run = run_forward(torch.softmax, arguments, side, operation="softmax", record="r", differentiate=True)
    found = run_backward(run, {"": arriving}, side, record="r")["args.0"]
    leaf = x.double().requires_grad_()
    (exact,) = torch.autograd.grad(torch.softmax(leaf, -1), leaf, arriving.double())
    assert found is not None
    assert found.dtype is f32
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-7)
