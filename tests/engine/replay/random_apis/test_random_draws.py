"""Numbers that a healthy torch draws pass at every size, and planted faults are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.random_apis.samples import judge_draws
from tests.support.dumps.random_results import FLOATS, SEEDS, SIZES, draw, outcome, property_of

DRAWS: list[tuple[str, Callable[..., Any], Callable[[int, torch.dtype], tuple[Any, ...]]]] = [
    ("bernoulli", torch.bernoulli, lambda n, d: (draw(n).sigmoid().to(d),)),
    ("bernoulli_", Tensor.bernoulli_, lambda n, d: (draw(n, dtype=d), 0.2)),
    ("bernoulli_", Tensor.bernoulli_, lambda n, d: (draw(n, dtype=d),)),
    ("uniform_", Tensor.uniform_, lambda n, d: (draw(n, dtype=d),)),
    ("uniform_", Tensor.uniform_, lambda n, d: (draw(n, dtype=d), -3.0, 5.0)),
    ("uniform_", Tensor.uniform_, lambda n, d: (draw(n, dtype=d), 100.0, 101.0)),
    ("normal_", Tensor.normal_, lambda n, d: (draw(n, dtype=d),)),
    ("normal_", Tensor.normal_, lambda n, d: (draw(n, dtype=d), 1000.0, 0.01)),
    ("normal", torch.normal, lambda n, d: (draw(n, dtype=d), draw(n, dtype=d).abs())),
    ("normal", torch.normal, lambda n, d: (1.0, 2.0, (n,))),
    ("normal", torch.normal, lambda n, d: (torch.complex(draw(n), draw(n, seed=1)), draw(n).abs())),
    ("normal", torch.normal, lambda n, d: (draw(n, dtype=d)[0], draw(n, dtype=d)[0].abs())),
    ("rand", torch.rand, lambda n, d: (n, 1)),
    ("rand_like", torch.rand_like, lambda n, d: (draw(n, dtype=d),)),
    ("randn", torch.randn, lambda n, d: ((n, 1),)),
    ("randn_like", torch.randn_like, lambda n, d: (draw(n, dtype=d),)),
    ("randn_like", torch.randn_like, lambda n, d: (torch.zeros(n, dtype=torch.complex64),)),
    ("exponential_", Tensor.exponential_, lambda n, d: (draw(n, dtype=d), 2.0)),
    ("geometric_", Tensor.geometric_, lambda n, d: (draw(n, dtype=d), 0.2)),
    ("cauchy_", Tensor.cauchy_, lambda n, d: (draw(n, dtype=d),)),
    ("log_normal_", Tensor.log_normal_, lambda n, d: (draw(n, dtype=d),)),
    ("poisson", torch.poisson, lambda n, d: (draw(n).mul(5).abs().to(d),)),
    ("random_", Tensor.random_, lambda n, d: (draw(n, dtype=d),)),
    ("random_", Tensor.random_, lambda n, d: (draw(n, dtype=d), 10)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.int64),)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.uint8),)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.bool),)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.int32), -5, 17)),
    ("randint", torch.randint, lambda n, d: (3 * 2**30, (n,))),
    ("randint", torch.randint, lambda n, d: (2, 9, (n,))),
    ("randint_like", torch.randint_like, lambda n, d: (draw(n, dtype=d), 5)),
    ("randperm", torch.randperm, lambda n, d: (n,)),
    ("multinomial", torch.multinomial, lambda n, d: (draw(-(-n // 4), 6).abs().to(d), 4, True)),
    ("multinomial", torch.multinomial, lambda n, d: (draw(-(-n // 4), 6).abs().to(d), 4)),
    ("multinomial", torch.multinomial, lambda n, d: (draw(6).abs().to(d), n, True)),
    ("gumbel_softmax", F.gumbel_softmax, lambda n, d: (draw(-(-n // 4), 5, dtype=d),)),
    ("gumbel_softmax", F.gumbel_softmax, lambda n, d: (draw(-(-n // 4), 5, dtype=d), 10.0, True)),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("api", "function", "arguments"), DRAWS)
def test_healthy_draws_pass(
    api: str, function: Callable[..., Any], arguments: Callable[[int, torch.dtype], tuple[Any, ...]], size: int
) -> None:
    for seed in SEEDS:
        args = arguments(size, FLOATS[seed % 3])
        torch.manual_seed(seed + 1000)  # not the stream of the inputs
        given = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        verdict = property_of(api, *args).check_forward(function(*given))
        assert verdict.outcome == "pass", verdict


SURE = [
    ("bernoulli", torch.bernoulli, (torch.tensor([0.0, 1.0, 1.0]),)),
    ("multinomial", torch.multinomial, (torch.tensor([0.0, 0.0, 1.0, 0.0]), 1)),
    ("multinomial", torch.multinomial, (torch.tensor([0.0, 0.0, 1.0, 0.0]), 50, True)),
    ("multinomial", torch.multinomial, (torch.eye(3, dtype=torch.float16), 1)),
    ("multinomial", torch.multinomial, (torch.ones(3, 1), 1)),
    ("multinomial", torch.multinomial, (torch.softmax(torch.eye(4, 100).double() * 1e3, -1), 1)),
    ("poisson", torch.poisson, (torch.zeros(3),)),
    ("randint", torch.randint, (3, 4, (5,))),
    ("randperm", torch.randperm, (1,)),
    ("uniform_", Tensor.uniform_, (torch.zeros(4), 1.0, 1.0)),
]


@pytest.mark.parametrize(("api", "function", "args"), SURE)
def test_draws_from_a_distribution_of_one_value_pass(api: str, function: Callable[..., Any], args: Any) -> None:
    given = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
    verdict = property_of(api, *args).check_forward(function(*given))
    assert verdict.outcome == "pass", verdict


SCALARS: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("bernoulli", torch.bernoulli, (torch.tensor(0.3),)),
    ("bernoulli_", Tensor.bernoulli_, (torch.tensor(0.0), 0.3)),
    ("uniform_", Tensor.uniform_, (torch.tensor(0.0),)),
    ("normal_", Tensor.normal_, (torch.tensor(0.0),)),
    ("normal", torch.normal, (torch.tensor(0.3), torch.tensor(2.0))),
    ("normal", torch.normal, (torch.tensor(0.3), torch.tensor(0.0))),
    ("normal", torch.normal, (torch.tensor(0.3), 2.0)),
    ("normal", torch.normal, (torch.tensor(1j), torch.tensor(2.0))),
    ("randn_like", torch.randn_like, (torch.tensor(0.0),)),
    ("exponential_", Tensor.exponential_, (torch.tensor(0.0),)),
    ("geometric_", Tensor.geometric_, (torch.tensor(0.0), 0.2)),
    ("cauchy_", Tensor.cauchy_, (torch.tensor(0.0),)),
    ("log_normal_", Tensor.log_normal_, (torch.tensor(0.0),)),
    ("poisson", torch.poisson, (torch.tensor(3.0),)),
    ("random_", Tensor.random_, (torch.tensor(0),)),
    ("randint_like", torch.randint_like, (torch.tensor(0), 5)),
    ("dropout", F.dropout, (torch.tensor(3.0), 0.5)),
    ("alpha_dropout", F.alpha_dropout, (torch.tensor(3.0), 0.5, True)),
    ("rrelu", F.rrelu, (torch.tensor(-3.0), 0.1, 0.5, True)),
    ("gumbel_softmax", F.gumbel_softmax, (torch.tensor(3.0),)),
]


@pytest.mark.parametrize(("api", "function", "args"), SCALARS)
def test_a_scalar_is_drawn_and_judged_as_any_tensor(
    api: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    given = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
    randomness = property_of(api, *args)
    runs = (function(*given) for _ in range(20))
    verdict = judge_draws(randomness, (run.clone() for run in runs))
    assert verdict.outcome == "pass", verdict


def generated(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


N = 10_000
ZEROS = torch.zeros(N)
BYTES = torch.zeros(N, dtype=torch.uint8)
FOURS = torch.full((N,), 4.0)
UNIT = torch.rand(N, generator=generated())
NORMAL = torch.randn(N, generator=generated())
FAULTS: list[tuple[str, str, Tensor, tuple[Any, ...]]] = [
    ("a constant where two differ", "rand", torch.full((3,), 0.37), (3,)),
    ("stuck uniform", "rand", torch.full((N,), 0.37), (N,)),
    ("one value above the range", "rand", UNIT.index_fill(0, torch.tensor([5]), 1.01), (N,)),
    ("a negative value", "uniform_", torch.rand(7, generator=generated()) - 2, (torch.zeros(7),)),
    ("half the range", "rand", torch.rand(100, generator=generated()) / 2, (100,)),
    ("a tenth of the range missing", "rand", UNIT * 0.9, (N,)),
    ("a squared uniform", "rand", UNIT ** 1.2, (N,)),
    ("NaN among normals", "randn", torch.full((1,), torch.nan), (1,)),
    ("a normal ten percent too wide", "randn", NORMAL * 1.1, (N,)),
    ("a normal shifted by a tenth", "randn", NORMAL + 0.1, (N,)),
    ("normals without tails", "randn", (UNIT - 0.5) * 12**0.5, (N,)),
    ("mean ignored", "normal_", torch.randn(100, generator=generated()), (torch.zeros(100), 3.0)),
    ("std as variance", "normal", 1 + 4 * NORMAL, (1.0, 2.0, (N,))),
    ("another size", "randn", torch.randn(4), (5,)),
    ("integers without the highest", "randint", torch.randint(0, 9, (N,), generator=generated()), (10, (N,))),
    ("an integer too many", "randint", torch.tensor([10]), (10, (1,))),
    ("an integer too low", "randint", torch.tensor([1]), (2, 10, (1,))),
    ("stuck integers", "randint", torch.full((50,), 3), (10, (50,))),
    ("bytes without the high half", "random_", BYTES.clone().random_(0, 128, generator=generated()), (BYTES,)),
    ("a repeated number", "randperm", torch.tensor([0, 2, 2, 3]), (4,)),
    ("nothing permuted", "randperm", torch.arange(20), (20,)),
    ("an exponential of another rate", "exponential_", UNIT.log().neg(), (ZEROS, 1.2)),
    ("a negative exponential", "exponential_", torch.tensor([-0.1]), (torch.zeros(1),)),
    ("geometric from 0", "geometric_", torch.zeros(1), (torch.zeros(1), 0.5)),
    ("geometric of another p", "geometric_", ZEROS.clone().geometric_(0.3, generator=generated()), (ZEROS, 0.2)),
    ("cauchy of another width", "cauchy_", ZEROS.clone().cauchy_(0, 1.3, generator=generated()), (ZEROS,)),
    ("log normal of another std", "log_normal_", (1 + 1.8 * NORMAL).exp(), (ZEROS,)),
    ("rates instead of counts", "poisson", FOURS, (FOURS,)),
    ("poisson of another rate", "poisson", torch.poisson(FOURS + 0.3, generator=generated()), (FOURS,)),
    ("a fraction as a count", "poisson", torch.tensor([0.5]), (torch.tensor([1.0]),)),
    ("a count of rate 0", "poisson", torch.tensor([1.0]), (torch.tensor([0.0]),)),
    ("a half among zeros and ones", "bernoulli_", torch.tensor([0.0, 0.5]), (torch.zeros(2),)),
    ("bernoulli off by a tenth", "bernoulli_", ZEROS.clone().bernoulli_(0.6, generator=generated()), (ZEROS, 0.5)),
    ("one where p is 0", "bernoulli", torch.tensor([1.0]), (torch.tensor([0.0]),)),
    ("zero where p is 1", "bernoulli", torch.tensor([0.0]), (torch.tensor([1.0]),)),
    ("an index out of range", "multinomial", torch.tensor([3]), (torch.ones(3), 1)),
    ("an index of weight 0", "multinomial", torch.tensor([1]), (torch.tensor([1.0, 0.0]), 1)),
    ("a repeated index", "multinomial", torch.tensor([1, 1]), (torch.ones(3), 2)),
    ("weights ignored", "multinomial", (UNIT < 0.5).long(), (torch.tensor([0.4, 0.6]), N, True)),
    ("rows that do not sum to one", "gumbel_softmax", torch.full((1, 4), 0.3), (torch.zeros(1, 4),)),
    ("soft rows instead of hard", "gumbel_softmax", torch.full((1, 4), 0.25), (torch.zeros(1, 4), 1.0, True)),
    ("logits taken for the draw", "gumbel_softmax", torch.eye(4)[:1].expand(400, 4), (torch.zeros(400, 4), 1.0, True)),
]  # fmt: skip


@pytest.mark.parametrize(("api", "output", "args"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_is_found(api: str, output: Tensor, args: tuple[Any, ...]) -> None:
    assert outcome(api, output, *args) == "fail"


def test_probabilities_that_are_swapped_between_elements_are_found() -> None:
    p = torch.cat((torch.full((500,), 0.05), torch.full((500,), 0.95)))
    assert outcome("bernoulli", torch.bernoulli(p, generator=generated()), p) == "pass"
    assert outcome("bernoulli", torch.bernoulli(p.flip(0), generator=generated()), p) == "fail"


def test_a_draw_that_passes_a_gradient_on_is_found() -> None:
    x = draw(3)
    judged = property_of("bernoulli_", x)
    good = judged.check_backward(torch.zeros(3), [torch.ones(3)], [torch.zeros(3)])
    bad = judged.check_backward(torch.zeros(3), [torch.ones(3)], [torch.ones(3)])
    assert good is not None
    assert bad is not None
    assert (good.outcome, bad.outcome) == ("pass", "fail")


def test_gumbel_gradients_that_do_not_sum_to_zero_are_found() -> None:
    logits = draw(6, 4).requires_grad_()
    torch.manual_seed(0)
    y = F.gumbel_softmax(logits)
    grad = draw(6, 4, seed=1)
    y.backward(grad)
    assert logits.grad is not None
    judged = property_of("gumbel_softmax", logits.detach())
    good = judged.check_backward(y, [grad], [logits.grad])
    bad = judged.check_backward(y, [grad], [logits.grad + 0.1])
    assert good is not None
    assert bad is not None
    assert (good.outcome, bad.outcome) == ("pass", "fail")
