"""The default policy on simulated devices: silent on correct ones, however they round and sum, and loud on faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from msprobe_standards import Policy, Verdict, judge

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
HALVES = DTYPES[:2]
SHAPES = [(1, 1), (1, 16), (4, 33), (64, 64), (50, 512)]
WIDE = (64, 256)
Function = Callable[..., torch.Tensor]


def verdict_on(api: str, device: Function, cpu: Function, *args: torch.Tensor) -> Verdict:
    """Judge what a device computes by the default policy, with the CPU's own result as baseline."""
    target = device(*args)
    raised = torch.float64 if args[0].dtype == torch.float32 else torch.float32
    golden = cpu(*(arg.to(raised) for arg in args))
    by = Policy.load("default").select(api, output_dtype=target.dtype)
    return judge(target, golden, standard=by, baseline=lambda: cpu(*args))


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    """Sum over the last dimension in float32, element after element."""
    total = torch.zeros(x.shape[:-1])
    for column in x.float().unbind(-1):
        total = total + column
    return total


def device_softmax(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp2((x.float() - x.float().amax(-1, keepdim=True)) * 1.4426950408889634)
    return (powers / one_by_one(powers)[..., None]).to(x.dtype)


def device_layer_norm(x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    wide, n = x.float(), x.shape[-1]
    centred = wide - one_by_one(wide)[..., None] / n
    return (centred * torch.rsqrt(one_by_one(centred * centred)[..., None] / n + eps)).to(x.dtype)


def device_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], 8):
        total = total + a[:, k : k + 8].float() @ b[k : k + 8].float()
    return total.to(a.dtype)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def truncated(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round towards zero."""
    nearest = wide.to(dtype)
    bits = nearest.view(torch.int32 if dtype == torch.float32 else torch.int16)
    return torch.where(nearest.to(wide.dtype).abs() > wide.abs(), (bits - 1).view(dtype), nearest)


CORRECT = {
    "sum": ("sum", lambda x: one_by_one(x).to(x.dtype), lambda x: x.sum(-1)),
    "mean": ("mean", lambda x: (one_by_one(x) / x.shape[-1]).to(x.dtype), lambda x: x.mean(-1)),
    "softmax": ("softmax", device_softmax, softmax),
    "layer_norm": ("layer_norm", device_layer_norm, layer_norm),
    "gelu": ("gelu", lambda x: (0.5 * x.float() * (1 + torch.erf(x.float() * 0.5**0.5))).to(x.dtype), F.gelu),
    "silu": ("silu", lambda x: (x.float() / (1 + torch.exp(-x.float()))).to(x.dtype), F.silu),
    "exp": ("exp", lambda x: torch.exp2(x.float() * 1.4426950408889634).to(x.dtype), torch.exp),
    "add of a scalar": ("__add__", lambda x: (x.float() + 0.1).to(x.dtype), lambda x: x + 0.1),
    "product with a scalar": ("__mul__", lambda x: (x.float() * 0.1).to(x.dtype), lambda x: x * 0.1),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_but_different_device_raises_no_alarm(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    api, device, cpu = CORRECT[name]
    verdict = verdict_on(api, device, cpu, random(shape, dtype, seed))
    assert verdict.outcome == "pass", verdict


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_another_order_of_summation_raises_no_alarm(dtype: torch.dtype, shape: tuple[int, ...], positive: bool) -> None:
    a, b = random(shape, dtype, 0), random((shape[1], 37), dtype, 1)
    if positive:
        a, b = a.abs(), b.abs()
    verdict = verdict_on("matmul", device_matmul, torch.matmul, a, b)
    assert verdict.outcome == "pass", verdict


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["mul", "add", "div", "addcmul", "gelu", "softmax", "cumsum", "floor_divide", "fmod"])
def test_the_cpu_compared_with_itself_raises_no_alarm(name: str, dtype: torch.dtype) -> None:
    x, y = random(WIDE, dtype, 0), random(WIDE, dtype, 1)
    function: Function = {
        "add": lambda x, y: torch.add(x, y, alpha=0.3),
        "addcmul": lambda x, y: torch.addcmul(x, y, x, value=0.5),
        "gelu": lambda x, y: F.gelu(x),
        "softmax": lambda x, y: softmax(x),
        "cumsum": lambda x, y: x.cumsum(-1),
    }.get(name) or getattr(torch, name)
    verdict = verdict_on(name, function, function, x, y)
    assert verdict.outcome == "pass", verdict


def half_accumulation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_accumulation_in_half_precision_is_caught(dtype: torch.dtype) -> None:
    a, b = random(WIDE, dtype, 0), random((WIDE[1], 37), dtype, 1)
    assert verdict_on("matmul", half_accumulation, torch.matmul, a, b).outcome == "fail"


def test_operands_rounded_to_ten_mantissa_bits_are_caught() -> None:
    def tf32(x: torch.Tensor) -> torch.Tensor:
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    a, b = random(WIDE, torch.float32, 0), random((WIDE[1], 37), torch.float32, 1)
    assert verdict_on("matmul", lambda a, b: tf32(a) @ tf32(b), torch.matmul, a, b).outcome == "fail"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dropped_last_element_is_caught(dtype: torch.dtype) -> None:
    a, b = random(WIDE, dtype, 0), random((WIDE[1], 37), dtype, 1)
    assert verdict_on("matmul", lambda a, b: a[:, :-1] @ b[:-1], torch.matmul, a, b).outcome == "fail"
    assert verdict_on("sum", lambda x: x[:, :-1].sum(-1), lambda x: x.sum(-1), a).outcome == "fail"


def test_a_wrong_epsilon_is_caught() -> None:
    x = random(WIDE, torch.float32, 0)
    assert verdict_on("layer_norm", lambda x: device_layer_norm(x, 1e-6), layer_norm, x).outcome == "fail"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("api", ["matmul", "softmax", "gelu"])
def test_truncation_of_a_wide_result_is_caught(api: str, dtype: torch.dtype) -> None:
    functions: dict[str, Function] = {"matmul": lambda x: x @ x.t(), "softmax": softmax, "gelu": F.gelu}
    cpu = functions[api]
    verdict = verdict_on(api, lambda x: truncated(cpu(x.float()), x.dtype), cpu, random(WIDE, dtype, 0))
    assert verdict.outcome == "fail"
    assert "gain_error" in verdict.reason


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("api", ["mul", "add", "sub"])
def test_truncation_of_an_elementwise_result_is_caught(api: str, dtype: torch.dtype) -> None:
    function = getattr(torch, api)
    x, y = random(WIDE, dtype, 0), random(WIDE, dtype, 1)
    device: Function = lambda x, y: truncated(function(x.double(), y.double()), x.dtype)  # noqa: E731
    assert verdict_on(api, device, function, x, y).outcome == "fail"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("api", "cpu"), [("softmax", softmax), ("layer_norm", layer_norm), ("relu", F.relu)])
def test_one_wrong_element_is_caught(api: str, cpu: Function, dtype: torch.dtype) -> None:
    def device(x: torch.Tensor) -> torch.Tensor:
        result = cpu(x).clone()
        result[3, 5] += 0.3 * result.abs().mean()
        return result

    verdict = verdict_on(api, device, cpu, random(WIDE, dtype, 0))
    assert verdict.outcome == "fail"
    assert "; at [3, 5] " in verdict.reason


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_index_that_is_off_by_one_is_caught(dtype: torch.dtype) -> None:
    x = random(WIDE, dtype, 0)
    assert verdict_on("select", lambda x: x[:, 4], lambda x: x[:, 3], x).outcome == "fail"
    assert verdict_on("argmax", lambda x: x.argmax(-1) + 1, lambda x: x.argmax(-1), x).outcome == "fail"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_that_becomes_zero_is_caught(dtype: torch.dtype) -> None:
    x = random(WIDE, dtype, 0)
    x[2, 3] = float("nan")
    assert verdict_on("softmax", lambda x: softmax(x).nan_to_num(0.0), softmax, x).outcome == "fail"
    assert verdict_on("relu", lambda x: F.relu(x).nan_to_num(0.0), F.relu, x).outcome == "fail"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flushed_subnormals_are_caught(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal
    x = (random(WIDE, torch.float32, 0).double() * tiny).to(dtype)

    def flushed(x: torch.Tensor) -> torch.Tensor:
        half = x * 0.5
        return torch.where(half.abs() < tiny, torch.zeros_like(half), half)

    assert verdict_on("mul", flushed, lambda x: x * 0.5, x).outcome == "fail"


def test_tiny_probabilities_flushed_to_zero_are_caught() -> None:
    x = 8 * random(WIDE, torch.float32, 0)
    device: Function = lambda x: torch.where(softmax(x) < 1e-6, 0.0, softmax(x))  # noqa: E731
    assert verdict_on("softmax", device, softmax, x).outcome == "fail"


@pytest.mark.parametrize("number", [0.7, 1.9, 3.0, 5.3e-4, 0.031622776601683805])
def test_a_division_by_a_number_may_multiply_by_its_rounded_reciprocal(number: float) -> None:
    # As CUDA does; it drifts all results alike, which no drift of the CPU's own result explains.
    x = random(WIDE, torch.float32, 3)
    target = x * torch.tensor(1 / number, dtype=torch.float64).float()
    by = Policy.load("default").select("div", output_dtype=torch.float32, scalars=True)
    assert judge(target, x.double() / number, standard=by, baseline=x / number).outcome == "pass"


def test_a_drift_fails_where_no_number_explains_it() -> None:
    x, y = random(WIDE, torch.float32, 3), random(WIDE, torch.float32, 4).abs() + 0.5
    golden = x.double() / y.double()
    by = Policy.load("default").select("div", output_dtype=torch.float32)
    assert "gain_error" in judge(truncated(golden, torch.float32), golden, standard=by, baseline=x / y).reason


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_narrow_partial_sums_of_a_narrow_product_are_found(dtype: torch.dtype) -> None:
    def narrow(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
        for k in range(0, a.shape[1], 16):
            total = (total.float() + a[:, k : k + 16].float() @ b[k : k + 16].float()).to(dtype)
        return total

    a, b = random(WIDE, dtype, 5), random(WIDE[::-1], dtype, 6)
    assert verdict_on("matmul", narrow, torch.matmul, a, b).outcome == "fail"


# Where the output is a single element, product and bias may cancel with nothing to relate the error to.
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_bias_of_a_narrow_product_may_be_added_after_rounding(
    dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    def twice_rounded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return device_matmul(x, weight.T) + bias

    x, weight, bias = random(shape, dtype, seed), random(shape, dtype, seed + 9), random(shape[:1], dtype, seed + 99)
    assert verdict_on("linear", twice_rounded, F.linear, x, weight, bias).outcome == "pass"


@pytest.mark.parametrize("api", ["addcmul", "addcdiv"])
def test_the_order_of_the_factors_of_a_fused_update_is_free(api: str) -> None:
    x, a, b = (random(WIDE, torch.float32, seed) for seed in (7, 8, 9))
    b = b.abs() + 0.5
    cpu = torch.addcmul if api == "addcmul" else torch.addcdiv
    term = a * b if api == "addcmul" else a / b
    by = Policy.load("default").select(api, output_dtype=torch.float32, scalars=True)
    golden = cpu(x.double(), a.double(), b.double(), value=-0.01)
    baseline = cpu(x, a, b, value=-0.01)
    assert judge(x - 0.01 * term, golden, standard=by, baseline=baseline).outcome == "pass"
    assert judge(x - 0.01001 * term, golden, standard=by, baseline=baseline).outcome == "fail"
