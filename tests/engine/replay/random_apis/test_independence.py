"""Random numbers that repeat are found, at a distance and from call to call; independent ones are not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe import CallResult, check_call
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.random_apis import distributions
from pytest_msprobe.engine.replay.random_apis.independence import distances
from pytest_msprobe.engine.replay.random_apis.samples import judge_draws, most_equal
from tests.support.dumps.random_results import FLOATS, outcome, property_of

SHAPE = (8, 6, 256)
N = 8 * 6 * 256


def repeated(draw: Callable[[int], Tensor], distance: int, n: int = N) -> Tensor:
    """Return ``n`` numbers of which each block of ``distance`` equals the first one."""
    return draw(distance).repeat(-(-n // distance))[:n]


def masked(kept: Tensor, p: float) -> Tensor:
    return kept.view(SHAPE) / (1 - p)


@pytest.mark.parametrize("distance", [1, 2, 3, 64, 256, 512, 1536, N // 2])
def test_a_dropout_mask_that_repeats_at_a_distance_fails(distance: int) -> None:
    torch.manual_seed(1)
    kept = repeated(lambda n: (torch.rand(n) >= 0.5).float(), distance) if distance > 1 else pairs_of(torch.rand)
    assert outcome("dropout", masked((kept >= 0.5).float(), 0.5), torch.ones(SHAPE), 0.5, True) == "fail"


def pairs_of(draw: Callable[[int], Tensor]) -> Tensor:
    return draw(N // 2).repeat_interleave(2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("distance", [2, 100, 512, 1536, 2000, N // 2])
@pytest.mark.parametrize(
    ("api", "draw", "rest"), [("uniform_", torch.rand, (0.0, 1.0)), ("normal_", torch.randn, (0.0, 1.0))]
)
def test_a_sample_that_repeats_at_a_distance_fails(
    api: str, draw: Callable[[int], Tensor], rest: tuple[float, ...], distance: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(2)
    values = repeated(draw, distance).to(dtype).view(SHAPE)
    assert outcome(api, values, torch.zeros(SHAPE, dtype=dtype), *rest) == "fail"


def test_normal_numbers_of_means_of_their_own_that_repeat_fail() -> None:
    torch.manual_seed(3)
    mean, std = torch.randn(N), torch.rand(N) + 0.5
    assert outcome("normal", mean + std * repeated(torch.randn, 512), mean, std) == "fail"
    assert outcome("normal", mean + std * torch.randn(N), mean, std) == "pass"


def test_bernoulli_draws_in_equal_pairs_fail() -> None:
    torch.manual_seed(4)
    p = torch.rand(N // 2).repeat_interleave(2)
    drawn = (torch.rand(N // 2).repeat_interleave(2) < p).float()
    assert outcome("bernoulli", drawn, p) == "fail"
    assert outcome("bernoulli", torch.bernoulli(p), p) == "pass"


def test_integers_that_repeat_fail() -> None:
    torch.manual_seed(5)
    assert outcome("randint", repeated(lambda n: torch.randint(0, 100, (n,)), 1024), 0, 100, (N,)) == "fail"


def test_a_multinomial_that_ignores_the_weights_of_its_rows_fails() -> None:
    torch.manual_seed(6)
    weights = torch.rand(400, 16)
    assert outcome("multinomial", torch.randint(0, 16, (400, 20)), weights, 20, True) == "fail"
    assert outcome("multinomial", torch.multinomial(weights, 20, True), weights, 20, True) == "pass"


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 5), (0, 4), (2, 3, 4, 5), (1 << 20,)])
def test_distances_have_a_partner_for_every_element_of_the_first_block(shape: Sequence[int]) -> None:
    found, n = distances(shape), torch.Size(shape).numel()
    assert all(0 < distance <= n // 2 for distance in found)
    assert len(found) == len(set(found)) <= 30


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("distribution", "draw"),
    [
        (distributions.uniform(-1, 3), lambda x: x.uniform_(-1, 3)),
        (distributions.normal(2, 3), lambda x: x.normal_(2, 3)),
        (distributions.log_normal(1, 2), lambda x: x.log_normal_(1, 2)),
        (distributions.exponential(2.5), lambda x: x.exponential_(2.5)),
        (distributions.cauchy(1, 2), lambda x: x.cauchy_(1, 2)),
        (distributions.geometric(0.2), lambda x: x.geometric_(0.2)),
        (distributions.integers(3, 200), lambda x: x.random_(3, 200)),
    ],
)
def test_no_number_is_drawn_more_often_than_the_bound_says(
    distribution: distributions.Distribution, draw: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    torch.manual_seed(7)
    drawn = draw(torch.empty(200_000, dtype=dtype))
    normal = drawn.isfinite() & (drawn.abs() >= torch.finfo(dtype).smallest_normal)
    largest = int(drawn[normal].unique(return_counts=True)[1].max())
    expected = 200_000 * most_equal(distribution, torch.finfo(dtype).eps)
    assert largest <= expected + 6 * expected**0.5 + 10


class _Sim(SimDevice):
    """A device that draws as ``rule`` says."""

    name = "drawing"

    def __init__(self, rule: Callable[[Callable[..., Any], Sequence[Any], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._rule = rule

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, *, record: str) -> Any:
        if record.endswith("backward"):
            return function(*args, **kwargs)
        return self._rule(function, args, dict(kwargs))


def seeded(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Draw the same numbers at every call, whatever was drawn before."""
    state = torch.get_rng_state()
    torch.manual_seed(11)
    try:
        return function(*args, **kwargs)
    finally:
        torch.set_rng_state(state)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "dropout": lambda: F.dropout(torch.ones(64, 64), 0.3),
    "dropout2d": lambda: F.dropout2d(torch.ones(64, 64, 3, 3), 0.5),
    "alpha_dropout": lambda: F.alpha_dropout(torch.ones(64, 64), 0.3, training=True),
    "bernoulli": lambda: torch.bernoulli(torch.full((500,), 0.4)),
    "normal_": lambda: torch.zeros(500).normal_(),
    "uniform_": lambda: torch.zeros(500).uniform_(),
    "multinomial": lambda: torch.multinomial(torch.rand(100, 6), 3),
    "poisson": lambda: torch.poisson(torch.rand(500) * 5),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.randn(200, 4)),
}


@pytest.mark.parametrize("api", PROGRAMS)
def test_a_call_that_draws_the_same_numbers_each_time_fails(api: str, tmp_path: Path) -> None:
    checked = checked_on(PROGRAMS[api], api, tmp_path, _Sim(seeded))
    assert checked.forward.outcome == "fail"
    assert "a second call without seeding gives the same random numbers" in checked.forward.reason


@pytest.mark.parametrize("api", PROGRAMS)
def test_a_call_that_goes_on_drawing_passes(api: str, tmp_path: Path) -> None:
    healthy = _Sim(lambda function, args, kwargs: function(*args, **kwargs))
    checked = checked_on(PROGRAMS[api], api, tmp_path, healthy)
    assert checked.forward.outcome == "pass", checked.forward.reason


def test_few_numbers_may_be_the_same_twice() -> None:
    x = torch.ones(8)
    first, another = F.dropout(x, 0.3), F.dropout(x, 0.3)
    draws = itertools.chain([first, first, another], (F.dropout(x, 0.3) for _ in itertools.count()))
    assert judge_draws(property_of("dropout", x, 0.3), draws).outcome == "pass"


def test_few_numbers_that_are_the_same_in_every_draw_fail(tmp_path: Path) -> None:
    checked = checked_on(lambda: F.dropout(torch.ones(8), 0.3), "dropout", tmp_path, _Sim(seeded))
    assert checked.forward.outcome == "fail"


def test_judging_a_random_call_leaves_the_generator_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(12)
    before = torch.get_rng_state()
    with record(tmp_path, task="statistics", level="L1"):
        F.dropout(torch.ones(64, 64), 0.3)
    torch.set_rng_state(before)
    check_recorded("dropout", tmp_path, SimDevice())
    assert torch.equal(torch.get_rng_state(), before)


def checked_on(program: Callable[[], Any], api: str, folder: Path, device: Device) -> CallResult:
    torch.manual_seed(10)
    with record(folder, task="statistics", level="L1"):
        program()
    return check_recorded(api, folder, device)


def check_recorded(api: str, folder: Path, device: Device) -> CallResult:
    dump = read_dump(next(folder.rglob("dump.json")))
    name = next(name for name in dump.api_names if f".{api}.0.forward" in name)
    return check_call(read_call(dump, name), device=device)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_million_healthy_draws_of_each_kind_raise_no_alarm(dtype: torch.dtype) -> None:
    torch.manual_seed(13)
    for size in [16, 100, 1000, 10_000, 100_000] * 10:
        zeros, ones = torch.zeros(size, dtype=dtype), torch.ones(size // 4, 4, dtype=dtype)
        assert outcome("normal_", zeros.clone().normal_(), zeros) == "pass"
        assert outcome("uniform_", zeros.clone().uniform_(), zeros) == "pass"
        assert outcome("bernoulli_", zeros.clone().bernoulli_(0.2), zeros, 0.2) == "pass"
        assert outcome("dropout", F.dropout(ones, 0.1), ones, 0.1, True) == "pass"
        assert property_of("dropout", ones, 0.7, True).check_forward(F.dropout(ones, 0.7)).outcome == "pass"


def attention() -> Tensor:
    query, key, value = (torch.randn(2, 3, 40, 16) for _ in range(3))
    return F.scaled_dot_product_attention(query, key, value, dropout_p=0.3, is_causal=True)


def half_repeats(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Attend with the mask of the first batch in all batches."""
    query, key, value = args
    visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    weights = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~visible, -torch.inf).softmax(-1)
    p = kwargs["dropout_p"]
    return (weights * (torch.rand(weights.shape[1:]) >= p) / (1 - p)) @ value


def without_dropout(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs | {"dropout_p": 0.0})


def weights_of(args: Sequence[Any]) -> Tensor:
    query, key = args[:2]
    visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~visible, -torch.inf).softmax(-1)


def scaled_by(factor: float) -> Callable[..., Any]:
    """Return attention whose kept weights are so many times what they should be."""

    def attend(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        p, weights = kwargs["dropout_p"], weights_of(args)
        return (weights * (torch.rand(weights.shape) >= p) * (factor / (1 - p) if p else 1.0)) @ args[2]

    return attend


def renormalised(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Divide what is kept by its sum: the same as dropping before the softmax."""
    p, weights = kwargs["dropout_p"], weights_of(args)
    kept = weights * (torch.rand(weights.shape) >= p)
    return (kept / kept.sum(-1, keepdim=True).clamp(min=1e-30)) @ args[2]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        *((scaled_by(factor), "weights are neither dropped nor scaled by 1.42857") for factor in (0.5, 0.7, 0.99)),
        (renormalised, "weights are neither dropped nor scaled by 1.42857"),
        (half_repeats, "share of unlike elements at a distance of"),
        (seeded, "a second call without seeding gives the same random numbers"),
        (without_dropout, "the share of dropped elements is 0"),
    ],
)
def test_a_wrong_dropout_mask_inside_attention_fails(rule: Callable[..., Any], reason: str, tmp_path: Path) -> None:
    checked = checked_on(attention, "scaled_dot_product_attention", tmp_path, _Sim(rule))
    failed = {
        output.path: output.verdict.reason for output in checked.forward.outputs if output.verdict.outcome == "fail"
    }
    assert list(failed) == ["dropout_mask"]
    assert reason in failed["dropout_mask"]


def trained_attention(dtype: torch.dtype = torch.float32, heads: int = 4, **options: Any) -> Tensor:
    shapes = [(2, 4, 40, 16), (2, heads, 56, 16), (2, heads, 56, 16)]
    query, key, value = (torch.randn(shape).to(dtype).requires_grad_() for shape in shapes)
    output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.3, **options)
    output.float().square().sum().backward()
    return output


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_dropout_mask_inside_attention_passes(dtype: torch.dtype, heads: int, tmp_path: Path) -> None:
    def program() -> Tensor:
        return trained_attention(dtype, heads, enable_gqa=heads != 4, is_causal=heads == 4)

    checked = checked_on(program, "scaled_dot_product_attention", tmp_path, SimDevice())
    assert checked.forward.outcome == "pass", checked.forward.reason
    assert "dropout_mask" in [output.path for output in checked.forward.outputs]
    assert checked.backward is not None
    assert checked.backward.outcome == "pass", checked.backward.reason
    assert "dropout_mask.grad" in [output.path for output in checked.backward.outputs]


class _Attention(torch.autograd.Function):
    """Attention with dropout, whose gradients take the weights that ``of_gradient`` makes of the kept ones."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, p: float, of_gradient: Any) -> Tensor:
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
        kept = weights * (torch.rand(weights.shape) >= p) / (1 - p)
        ctx.save_for_backward(kept if p == 0 else of_gradient(kept, weights, p), weights, query, key, value)
        return kept @ value

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        kept, weights, query, key, value = ctx.saved_tensors
        [gradient] = gradients
        of_scores = kept * (gradient @ value.mT)
        of_scores = (of_scores - weights * of_scores.sum(-1, keepdim=True)) * query.shape[-1] ** -0.5
        return of_scores @ key, of_scores.mT @ query, kept.mT @ gradient, None, None


@pytest.mark.parametrize(
    ("of_gradient", "is_right"),
    [
        (lambda kept, weights, p: kept, True),
        (lambda kept, weights, p: kept * (1 - p), False),
        (lambda kept, weights, p: weights * (torch.rand(weights.shape) >= p) / (1 - p), False),
    ],
    ids=["right", "no scale", "another mask"],
)
def test_a_gradient_has_the_mask_and_the_scale_of_attention(of_gradient: Any, is_right: bool, tmp_path: Path) -> None:
    def rule(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return _Attention.apply(*args[:3], kwargs["dropout_p"], of_gradient)

    checked = checked_on(trained_attention, "scaled_dot_product_attention", tmp_path, _Sim(rule))
    assert checked.forward.outcome == "pass", checked.forward.reason
    assert checked.backward is not None
    failed = [output.path for output in checked.backward.outputs if output.verdict.outcome == "fail"]
    assert failed == ([] if is_right else ["dropout_mask.grad"])
    assert is_right or "weights in the gradient do not have the forward's mask and scale" in checked.backward.reason
