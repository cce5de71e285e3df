"""Points at which kernels differ are among drawn inputs: what torch defines there is demanded, and nothing else is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, where

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import forward_record
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls import arguments
from pytest_msprobe.engine.replay.calls.arguments import build_arguments
from pytest_msprobe.engine.replay.inputs import large_tensors
from pytest_msprobe.engine.replay.ops.traits import OpInfo

Kernel = Callable[[Any, Any, Any], Any]

DTYPES = (torch.float32, torch.bfloat16)


class _Regraded(torch.autograd.Function):
    """A result whose gradients are computed by other formulas."""

    @staticmethod
    def forward(ctx: Any, formula: Any, result: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.formula, ctx.result = formula, result
        return result.clone()

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> Any:
        gradients = ctx.formula(arriving, ctx.result, *ctx.saved_tensors)
        return None, None, *(gradients if isinstance(gradients, tuple) else (gradients,))


def gradient(formula: Callable[..., Any]) -> Kernel:
    """Return a kernel with right results, whose gradients a formula gives for those that arrive, result and inputs."""

    def kernel(func: Any, args: Any, kwargs: Any) -> Any:
        inputs = [arg for arg in args if isinstance(arg, Tensor)]
        with torch.no_grad():
            result = func(*args, **kwargs)
        return _Regraded.apply(formula, result, *inputs)  # type: ignore[no-untyped-call]

    return kernel


def result(formula: Callable[..., Any]) -> Kernel:
    """Return a kernel whose result a formula gives for the call's arguments."""
    return lambda func, args, kwargs: formula(*args)


def last_first(x: Tensor, dim: int = -1) -> Tensor:
    """Return the order of a sort that leaves equal values in the opposite one."""
    return x.shape[dim] - 1 - x.flip(dim).argsort(dim=dim, stable=True)


def ordered(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    order = last_first(x)
    return x.gather(-1, order), order


def leaf(dtype: torch.dtype) -> Tensor:
    return (3 * torch.randn(16, 40)).to(dtype).requires_grad_()


SELU = 1.7580993408473766, 1.0507009873554805


def one(dtype: torch.dtype) -> list[Tensor]:
    return [leaf(dtype)]


def two(dtype: torch.dtype) -> list[Tensor]:
    return [leaf(dtype), leaf(dtype)]


def rows_and_values(dtype: torch.dtype) -> list[Tensor]:
    return [leaf(dtype).detach().sort(-1).values, leaf(dtype).detach()]


def base_and_exponent(dtype: torch.dtype) -> list[Tensor]:
    return [leaf(dtype).detach().relu(), leaf(dtype).detach().relu()]


def plain(dtype: torch.dtype) -> list[Tensor]:
    return [leaf(dtype).detach()]


def plain_pair(dtype: torch.dtype) -> list[Tensor]:
    return [leaf(dtype).detach(), leaf(dtype).detach()]


#: An API, its tensors and its other arguments, a kernel that is wrong at points alone, and one that is right there, by
#: formulas of its own.
FAULTS: dict[str, tuple[str, Callable[[torch.dtype], list[Tensor]], tuple[Any, ...], Kernel, Kernel]] = {
    "the gradient of relu at 0 is 1": (
        "Functional.relu", one, (),
        gradient(lambda g, y, x: where(x >= 0, g, 0)), gradient(lambda g, y, x: where(x > 0, g, 0)),
    ),
    "the gradient of relu6 at 6 is 1": (
        "Functional.relu6", one, (),
        gradient(lambda g, y, x: where((x > 0) & (x <= 6), g, 0)),
        gradient(lambda g, y, x: where((x > 0) & (x < 6), g, 0)),
    ),
    "the gradient of hardtanh at its edges is 1": (
        "Functional.hardtanh", one, (-2.0, 0.5),
        gradient(lambda g, y, x: where((x >= -2) & (x <= 0.5), g, 0)),
        gradient(lambda g, y, x: where((x > -2) & (x < 0.5), g, 0)),
    ),
    "the gradient of clamp at its edges is 0": (
        "Torch.clamp", one, (-1, 2.5),
        gradient(lambda g, y, x: where((x > -1) & (x < 2.5), g, 0)),
        gradient(lambda g, y, x: where((x >= -1) & (x <= 2.5), g, 0)),
    ),
    "the gradient of clamp at edges that are tensors is 0": (
        "Torch.clamp_min", two, (),
        gradient(lambda g, y, x, low: (where(x > low, g, 0), where(x > low, 0, g))),
        gradient(lambda g, y, x, low: (where(x >= low, g, 0), where(x >= low, 0, g))),
    ),
    "the gradient of hardsigmoid at its edges is 1/6": (
        "Functional.hardsigmoid", one, (),
        gradient(lambda g, y, x: where((x >= -3) & (x <= 3), g / 6, 0)),
        gradient(lambda g, y, x: where((x > -3) & (x < 3), g / 6, 0)),
    ),
    "the gradient of threshold there is 1": (
        "Functional.threshold", one, (0.25, -1.0),
        gradient(lambda g, y, x: where(x >= 0.25, g, 0)), gradient(lambda g, y, x: where(x > 0.25, g, 0)),
    ),
    "the gradient of leaky relu at 0 is 1": (
        "Functional.leaky_relu", one, (0.25,),
        gradient(lambda g, y, x: where(x >= 0, g, 0.25 * g)), gradient(lambda g, y, x: where(x > 0, g, 0.25 * g)),
    ),
    "the gradient of selu at 0 is that of its right side": (
        "Functional.selu", one, (),
        gradient(lambda g, y, x: where(x >= 0, SELU[1] * g, SELU[0] * g * x.exp())),
        gradient(lambda g, y, x: where(x > 0, SELU[1] * g, SELU[0] * g * x.exp())),
    ),
    "the gradient of softshrink at its edges is 1": (
        "Functional.softshrink", one, (),
        gradient(lambda g, y, x: where(x.abs() >= 0.5, g, 0)), gradient(lambda g, y, x: where(x.abs() > 0.5, g, 0)),
    ),
    "the gradient of abs at 0 is 1": (
        "Torch.abs", one, (),
        gradient(lambda g, y, x: where(x >= 0, g, -g)), gradient(lambda g, y, x: g * x.sign()),
    ),
    "the sign of 0 is 1": (
        "Torch.sign", plain, (),
        result(lambda x: where(x >= 0, 1.0, -1.0).to(x.dtype)), result(lambda x: where(x == 0, x, x / x.abs())),
    ),
    "the sign of -0 is lost": (
        "Torch.copysign", plain_pair, (),
        result(lambda x, y: where(y < 0, -x.abs(), x.abs())),
        result(lambda x, y: where(y.signbit(), -x.abs(), x.abs())),
    ),
    "halves are rounded up": (
        "Torch.round", one, (),
        result(lambda x: (x + 0.5).floor()),
        result(lambda x: where((x - x.trunc()).abs() == 0.5, 2 * (x / 2 + 0.25 * x.sign()).trunc(), (x + 0.5).floor())),
    ),
    "the ceiling of a whole number is the next one": (
        "Torch.ceil", one, (), result(lambda x: x.floor() + 1), result(lambda x: -(-x).floor()),
    ),
    "equal elements of maximum give one the gradient": (
        "Torch.maximum", two, (),
        gradient(lambda g, y, x, z: (where(x >= z, g, 0), where(x >= z, 0, g))),
        gradient(lambda g, y, x, z: (where(x == z, g / 2, g * (x > z)), where(x == z, g / 2, g * (x < z)))),
    ),
    "equal elements are not equal": (
        "Torch.eq", two, (),
        result(lambda x, y: torch.zeros_like(x, dtype=torch.bool)), result(lambda x, y: (x - y) == 0),
    ),
    "equal elements are less": (
        "Torch.lt", two, (), result(lambda x, y: x <= y), result(lambda x, y: x - y < 0),
    ),
    "0 to the power of 0 is NaN": (
        "Torch.pow", base_and_exponent, (),
        result(lambda x, y: where((x == 0) & (y == 0), math.nan, x.pow(y))),
        result(lambda x, y: where(y == 0, 1, x.pow(y))),
    ),
    "equal greatest elements all get the gradient": (
        "Torch.max", one, (),
        gradient(lambda g, y, x: g * (x == y)), gradient(lambda g, y, x: g * (x == y) / (x == y).sum()),
    ),
    "the least element gets the gradient once for each": (
        "Torch.amin", one, (-1,),
        gradient(lambda g, y, x: g[:, None] * (x == y[:, None])),
        gradient(lambda g, y, x: g[:, None] * (x == y[:, None]) / (x == y[:, None]).sum(-1, keepdim=True)),
    ),
    "equal medians all get the gradient": (
        "Torch.median", one, (),
        gradient(lambda g, y, x: g * (x == y)), gradient(lambda g, y, x: g * (x == y) / (x == y).sum()),
    ),
    "the mode is the least value": (
        "Torch.mode", one, (),
        result(lambda x: tuple(x.min(-1))),
        result(lambda x: (x.mode(-1).values, (x == x.mode(-1, keepdim=True).values).int().argmax(-1))),
    ),
    "equal values are behind the place that is looked for": (
        "Torch.searchsorted", rows_and_values, (),
        result(lambda rows, x: torch.searchsorted(rows, x, right=True)),
        result(lambda rows, x: (rows[:, None, :] < x[:, :, None]).sum(-1)),
    ),
    "the gradient of a norm that is zero is NaN": (
        "Torch.norm", one, (2, -1),
        gradient(lambda g, y, x: (g / y)[:, None] * x),
        gradient(lambda g, y, x: where(y == 0, 0, g / y)[:, None] * x),
    ),
    "the gradient of a difference of zero is 1": (
        "Functional.l1_loss", two, (None, None, "sum"),
        gradient(lambda g, y, x, z: (where(x >= z, g, -g), where(x >= z, -g, g))),
        gradient(lambda g, y, x, z: (g * (x - z).sign(), g * (z - x).sign())),
    ),
    "huber loss is a parabola below delta alone": (
        "Functional.huber_loss", two, ("none", 0.5),
        result(lambda x, y, *_: where((x - y).abs() == 0.5, 0.25, F.huber_loss(x, y, "none", delta=0.5))),
        result(lambda x, y, *_: where((x - y).abs() > 0.5, 0.5 * ((x - y).abs() - 0.25), 0.5 * (x - y).square())),
    ),
}  # fmt: skip

#: The order of equal values is open, and so is which of them is selected.
OPEN: dict[str, tuple[str, tuple[Any, ...], Kernel]] = {
    "sort": ("Torch.sort", (), result(ordered)),
    "argsort": ("Torch.argsort", (), result(lambda x: last_first(x))),
    "topk": ("Torch.topk", (3, -1), result(lambda x, *_: tuple(each[..., -3:].flip(-1) for each in ordered(x)))),
    "max of rows": ("Torch.max", (-1,), result(lambda x, dim: tuple(each[..., -1] for each in ordered(x)))),
    "argmin": ("Torch.argmin", (), result(lambda x: x.numel() - 1 - x.flatten().flip(0).argmin())),
    "cummax": ("Torch.cummax", (-1,), result(lambda x, dim: x.cummax(dim))),
}  # fmt: skip


def recorded(recorder: Any, api: str, args: Any) -> Call:
    kind, _, name = api.partition(".")
    call: Call = getattr(getattr(recorder, kind), name)(*args)
    return call


def outcomes(results: Any) -> set[str]:
    return {each.outcome for each in (results.forward, results.backward) if each is not None}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_that_is_wrong_at_points_alone_fails_and_its_sibling_passes(
    recorder: Any, check: Any, device_that: Any, fault: str, dtype: torch.dtype
) -> None:
    api, inputs, others, wrong, right = FAULTS[fault]
    call = recorded(recorder, api, [*inputs(dtype), *others])
    assert "fail" in outcomes(check(call, device=device_that(wrong)))
    assert outcomes(check(call, device=device_that(right))) == {"pass"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("choice", OPEN)
def test_what_torch_leaves_open_is_not_demanded(
    recorder: Any, check: Any, device_that: Any, choice: str, dtype: torch.dtype
) -> None:
    api, others, other = OPEN[choice]
    call = recorded(recorder, api, [leaf(dtype), *others])
    assert outcomes(check(call, device=device_that(other))) == {"pass"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_stable_sort_that_breaks_ties_the_other_way_fails(
    recorder: Any, check: Any, device_that: Any, dtype: torch.dtype
) -> None:
    call = recorder.Torch.sort(leaf(dtype), stable=True)
    found = check(call, device=device_that(lambda func, args, kwargs: ordered(*args)))
    assert outcomes(found) == {"fail"}
    assert outcomes(check(call)) == {"pass"}


def element(low: float, high: float, shape: tuple[int, ...] = (40, 50), **fields: Any) -> dict[str, Any]:
    known = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, "Max": high, "Min": low}
    return {**known, "requires_grad": False, **fields}


def value(number: float) -> dict[str, Any]:
    return {"type": type(number).__name__, "value": number}


def drawn(api: str, *args: Any, seed: int = 0, **fields: Any) -> list[Any]:
    """Return the arguments that are drawn for a call of an API."""
    name = parse_api_name(f"{api}.0.forward")
    body = {"input_args": args, "input_kwargs": {}, "output": [element(0, 1)]}
    record = forward_record(str(name), json.loads(json.dumps(body)))
    return list(build_arguments(Call(name, record, None, Path("none"), **fields), seed=seed, real_data=True).args)


def without_points(monkeypatch: pytest.MonkeyPatch, api: str, *args: Any) -> list[Any]:
    with monkeypatch.context() as patch:
        patch.setattr(arguments, "op_info", lambda name: OpInfo())
        return drawn(api, *args)


@pytest.mark.parametrize(("api", "others"), [("Torch.relu", []), ("Torch.clamp", [value(-1), value(0.5)])])
@pytest.mark.parametrize("large", [False, True])
def test_points_are_at_a_few_places_and_all_other_elements_stay(
    monkeypatch: pytest.MonkeyPatch, api: str, others: list[Any], large: bool
) -> None:
    monkeypatch.setattr(large_tensors, "LARGE", 1 if large else 2**22)
    x = element(-2.0, 3.0)
    values, before = drawn(api, x, *others)[0], without_points(monkeypatch, api, x, *others)[0]
    places = values != before
    assert places.sum() == 8
    assert not places.view(-1)[[0, -1]].any()
    assert values[places].tolist().count(-1.0 if others else 0.0) == (4 if others else 8)
    assert values[places].signbit().sum() == 4
    assert (values.min(), values.max()) == (-2.0, 3.0)


def test_points_depend_on_the_seed_and_the_call_alone() -> None:
    x = element(-2.0, 3.0)
    assert torch.equal(drawn("Torch.relu", x)[0], drawn("Torch.relu", x)[0])
    assert ((drawn("Torch.relu", x)[0] == 0) != (drawn("Torch.relu", x, seed=1)[0] == 0)).any()


@pytest.mark.parametrize(
    ("api", "args"),
    [
        ("Torch.relu", [element(0.5, 3.0)]),
        ("Torch.relu", [element(-2.0, 3.0, (7,))]),
        ("Torch.clamp", [element(-2.0, 3.0), value(-3.0), value(0.1)]),
        ("Torch.maximum", [element(-2.0, -1.0), element(1.0, 3.0)]),
        ("Functional.hardswish", [element(-5.0, 5.0)]),
        ("Functional.gelu", [element(-5.0, 5.0)]),
        ("Torch.round", [element(0.0, 0.25)]),
        ("Torch.pow", [element(-2.0, 3.0), value(-1)]),
        ("Torch.pow", [element(0.0, 3.0), value(0.5)]),
        ("Torch.norm", [element(0.5, 3.0), value(2), value(-1)]),
        ("Torch.abs", [element(-5, 5, dtype="torch.int32")]),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_no_point_is_put_that_is_excluded_inexact_open_or_infinite(
    monkeypatch: pytest.MonkeyPatch, api: str, args: list[Any]
) -> None:
    for values, before in zip(drawn(api, *args), without_points(monkeypatch, api, *args), strict=True):
        assert values is before or torch.equal(torch.as_tensor(values), torch.as_tensor(before))


@pytest.mark.parametrize("name", ["Functional.relu", "Primitive.ReLU"])
def test_of_another_framework_no_point_is_known(name: str) -> None:
    x = element(-2.0, 3.0) | {"type": "mindspore.Tensor"}
    counterpart = parse_api_name("Torch.relu.0.forward") if name.startswith("Primitive") else None
    assert not (drawn(name, x, counterpart=counterpart)[0] == 0).any()


def test_nan_and_infinities_stay_as_they_were_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x = element(-math.inf, math.nan, finite_min=-2.0, finite_max=3.0, nan_count=1, posinf_count=0, neginf_count=900)
    values, before = drawn("Torch.relu", x)[0], without_points(monkeypatch, "Torch.relu", x)[0]
    assert (values == 0).sum() > 0
    assert torch.equal(values.isnan(), before.isnan())
    assert torch.equal(values.isinf(), before.isinf())


def test_points_of_a_masked_tensor_leave_the_mask() -> None:
    x = element(-1e4, 3.0, Mean=-5e3, Norm=1e4 * math.sqrt(1000))
    values = drawn("Torch.relu", x)[0]
    assert 900 < (values == -1e4).sum() < 1100
    assert (values == 0).sum() >= 4


def test_a_value_at_an_edge_that_is_a_tensor_is_exact_in_the_narrower_dtype() -> None:
    x, low = drawn("Torch.clamp_min", element(-2.0, 3.0, dtype="torch.bfloat16"), element(-1.0, 2.0))
    assert (x == low).sum() == 0
    low, x = drawn("Torch.maximum", element(-2.0, 3.0, dtype="torch.bfloat16"), element(-1.0, 2.0))
    assert (x == low).sum() == 0
    x, low = drawn("Torch.clamp_min", element(-2.0, 3.0), element(-1.0, 2.0, dtype="torch.bfloat16"))
    assert (x == low).sum() >= 2


def test_a_narrower_first_argument_gives_the_points() -> None:
    bias, x = drawn("Torch.maximum", element(-2.0, 3.0, (50,)), element(-2.0, 3.0))
    assert (x == bias).sum() >= 2
