"""Choices that depend on each other or on their places are found; independent ones of every generator are not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.attention_dropout import WeightMask
from pytest_msprobe.engine.replay.random_apis.independence import choices, judged, linear_complexity
from pytest_msprobe.engine.replay.random_apis.random_property import RandomProperty
from pytest_msprobe.engine.replay.random_apis.samples import judge_draws
from tests.engine.replay.random_apis.test_independence import _Sim, checked_on
from tests.support.dumps.random_results import outcome, property_of

SHAPE = (32, 512)
Mask = Callable[[float], Tensor]  # p -> which elements of SHAPE are kept


def independent(p: float) -> Tensor:
    return torch.rand(SHAPE) >= p


def mirrored_rows(p: float) -> Tensor:
    kept = independent(p)
    kept[:, 256:] = kept[:, :256].flip(1)
    return kept


def mirrored_as_a_whole(p: float) -> Tensor:
    kept = independent(p).flatten()
    kept[kept.numel() // 2 :] = kept[: kept.numel() // 2].flip(0)
    return kept.view(SHAPE)


def complementary_halves(p: float) -> Tensor:
    u = torch.rand(SHAPE)
    u[16:] = 1 - u[:16]
    return u >= p


def tail_of_rows_kept(p: float) -> Tensor:
    kept = independent(p)
    kept[:, -4:] = True
    return kept


def last_row_kept(p: float) -> Tensor:
    kept = independent(p)
    kept[-1] = True
    return kept


def fixed_count_of_each_row(p: float) -> Tensor:
    kept = torch.ones(SHAPE, dtype=torch.bool)
    for row in kept:
        row[torch.randperm(512)[: round(512 * p)]] = False
    return kept


def permuted_rows(p: float) -> Tensor:
    u = torch.rand(512)
    return torch.stack([u[torch.randperm(512)] for _ in range(32)]) >= p


def tenth_more(p: float) -> Tensor:
    return independent(p * 1.1)


def xor_of_neighbours(p: float) -> Tensor:
    kept = independent(p).flatten()
    n = kept.numel() // 3 * 3
    kept[2:n:3] = kept[0:n:3] ^ kept[1:n:3]
    return kept.view(SHAPE)


def shift_register(p: float) -> Tensor:
    """Return bits of x^n = x^(n-64) + x^(n-1) + x^(n-3), whose seed is drawn."""
    bits = (torch.rand(64) >= p).int().tolist()
    while len(bits) < math.prod(SHAPE):
        bits.append(bits[-64] ^ bits[-1] ^ bits[-3])
    return torch.tensor(bits).bool().view(SHAPE)


FAULTS: list[Mask] = [
    mirrored_rows,
    mirrored_as_a_whole,
    complementary_halves,
    tail_of_rows_kept,
    last_row_kept,
    fixed_count_of_each_row,
    permuted_rows,
    tenth_more,
]


def judged_masks(mask: Mask, p: float) -> str:
    """Return the outcome of dropout by such masks, drawn as often as a verdict asks for."""
    x = torch.ones(SHAPE)
    draws = (mask(p) / (1 - p) for _ in itertools.count())
    return judge_draws(property_of("dropout", x, p, True), draws).outcome


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("mask", FAULTS)
def test_a_mask_whose_choices_depend_on_each_other_or_on_their_place_fails(mask: Mask, p: float) -> None:
    torch.manual_seed(20)
    assert judged_masks(mask, p) == "fail"


@pytest.mark.parametrize("mask", [xor_of_neighbours, shift_register])
def test_a_mask_of_bits_that_are_made_of_others_fails(mask: Mask) -> None:
    torch.manual_seed(21)
    assert judged_masks(mask, 0.5) == "fail"


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_masks_of_independent_choices_pass(p: float) -> None:
    torch.manual_seed(22)
    assert [judged_masks(independent, p) for _ in range(5)] == ["pass"] * 5


def test_a_stream_that_each_call_moves_by_one_element_fails(tmp_path: Path) -> None:
    calls = itertools.count()

    def moved(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not args[1]:
            return function(*args, **kwargs)
        stream = torch.rand(args[0].numel() + 100, generator=torch.Generator().manual_seed(7))[next(calls) :]
        return args[0] * (stream[: args[0].numel()].view(args[0].shape) >= args[1]) / (1 - args[1])

    checked = checked_on(lambda: F.dropout(torch.ones(64, 512), 0.5), "dropout", tmp_path, _Sim(moved))
    assert checked.forward.outcome == "fail"
    assert "correlation of elements of one call and of the next, moved by -1 is 1, " in checked.forward.reason


@pytest.mark.parametrize(("never_on_the_diagonal", "expected"), [(True, "fail"), (False, "pass")])
def test_weights_on_the_diagonal_that_are_never_dropped_fail(never_on_the_diagonal: bool, expected: str) -> None:
    torch.manual_seed(23)
    weights = torch.full((2, 4, 64, 32), 1 / 64)

    def draw() -> list[Tensor]:
        kept = torch.rand(weights.shape) >= 0.2
        kept |= torch.eye(64, 32, dtype=torch.bool) & never_on_the_diagonal
        return [weights * kept / 0.8]

    assert judge_draws(WeightMask(weights, 0.2), (draw() for _ in itertools.count())).outcome == expected


def test_multinomial_draws_in_equal_pairs_fail() -> None:
    torch.manual_seed(24)
    weights = torch.rand(50, 8)
    right = torch.multinomial(weights, 40, True)
    assert outcome("multinomial", right, weights, 40, True) == "pass"
    assert outcome("multinomial", right[:, ::2].repeat_interleave(2, 1), weights, 40, True) == "fail"


@pytest.mark.parametrize(
    "permutation",
    [
        torch.arange(2000) ^ 1,
        torch.cat([torch.arange(1, 2000), torch.tensor([0])]),
        torch.arange(1024).view(32, 32).T.flatten(),
        torch.arange(2000).flip(0),
    ],
    ids=["neighbours swapped", "first moved to the end", "transposed", "reversed"],
)
def test_a_permutation_that_keeps_an_order_fails(permutation: Tensor) -> None:
    assert outcome("randperm", permutation, len(permutation)) == "fail"
    assert outcome("randperm", torch.randperm(2000), 2000) == "pass"


def coarse(values: Tensor, bits: int) -> Tensor:
    return (values * 2**bits).floor() / 2**bits


def low_bits_of_a_congruential_generator(n: int) -> Tensor:
    state, numbers = 12345, []
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        numbers.append(state % 2**10)
    return torch.tensor(numbers)


@pytest.mark.parametrize(
    ("api", "values", "rest"),
    [
        ("uniform_", lambda: coarse(torch.rand(100), 16), (0.0, 1.0)),
        ("uniform_", lambda: coarse(torch.rand(100), 8) * 5 - 2, (-2.0, 3.0)),
        ("normal_", lambda: torch.randn(100).bfloat16().float(), (0.0, 1.0)),
        ("normal_", lambda: torch.cat([half := torch.randn(2000), -half.flip(0)]), (0.0, 1.0)),
        ("normal_", lambda: torch.randn(2000).sign().repeat(2) * torch.randn(4000).abs(), (0.0, 1.0)),
        ("uniform_", lambda: torch.rand(4000).view(-1, 4).sort(1).values.flatten(), (0.0, 1.0)),
        (
            "exponential_",
            lambda: torch.empty(2000).exponential_().repeat_interleave(2) * (1 + 1e-4 * torch.rand(4000)),
            (1.0,),
        ),
    ],
    ids=["16 bits", "8 bits", "bfloat16", "antithetic", "signs repeat", "sorted in fours", "nearly pairs"],
)
def test_a_sample_of_few_digits_or_of_dependent_values_fails(
    api: str, values: Callable[[], Tensor], rest: tuple[float, ...]
) -> None:
    torch.manual_seed(25)
    found = values()
    assert outcome(api, found, torch.zeros_like(found), *rest) == "fail"


def test_integers_from_the_low_bits_of_a_congruential_generator_fail() -> None:
    drawn = low_bits_of_a_congruential_generator(4000)
    assert outcome("randint", drawn, 0, 1024, (4000,)) == "fail"
    assert outcome("randint", torch.randint(0, 1024, (4000,)), 0, 1024, (4000,)) == "pass"


@pytest.mark.parametrize("kind", ["Philox", "MT19937", "PCG64", "SFC64"])
def test_samples_of_other_generators_pass(kind: str) -> None:
    generator = np.random.Generator(getattr(np.random, kind)(26))
    numbers = torch.from_numpy(generator.integers(0, 2**32, 40_000, dtype=np.uint32).astype(np.int64))
    for uniform in ((numbers >> 8).float() * 2.0**-24, ((numbers + 1).double() * 2.0**-32).float()):
        assert outcome("uniform_", uniform, torch.zeros(40_000), 0.0, 1.0) == "pass"
        kept = (uniform.view(4, 100, 100) >= 0.3) / 0.7
        assert outcome("dropout", kept, torch.ones(4, 100, 100), 0.3, True) == "pass"


def test_a_probability_that_a_kernel_rounds_to_a_byte_passes_in_attention() -> None:
    torch.manual_seed(27)
    weights = torch.full((4, 8, 64, 64), 1 / 64)
    keep = 230 / 256  # for 0.9
    rule: RandomProperty = WeightMask(weights, 0.1)
    draws = ([weights * (torch.rand(weights.shape) < keep) / keep] for _ in itertools.count())
    assert judge_draws(rule, draws).outcome == "pass"


def exponent(verdict: Any) -> float:
    return float(verdict.metrics["tail_bound_exponent"])


@pytest.mark.parametrize(("size", "p"), [(1, 0.3), (5, 0.5), (12, 0.1), (12, 0.7)])
def test_the_mean_of_small_squared_differences_is_that_of_all_counts(size: int, p: float) -> None:
    rates, logarithms = tail_bound.small_squares(size, p * (1 - p))
    chances = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
    for rate, logarithm in zip(rates.tolist(), logarithms.tolist(), strict=True):
        mean = sum(a * b * math.exp(-rate * (i - j) ** 2) for i, a in enumerate(chances) for j, b in enumerate(chances))
        assert math.exp(logarithm) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("chances", [(0.5, 0.5), (0.2, 0.3, 0.5), (0.25, 0.25, 0.25, 0.25)])
def test_the_exponent_at_a_relative_entropy_bounds_the_multinomial_tail(chances: tuple[float, ...]) -> None:
    n = 12
    outcomes = []
    for counts in itertools.product(range(n + 1), repeat=len(chances)):
        if sum(counts) == n:
            ways = math.factorial(n) / math.prod(map(math.factorial, counts))
            probability = ways * math.prod(p**k for p, k in zip(chances, counts, strict=True))
            found = tail_bound.frequencies("words", torch.tensor(counts), torch.tensor(chances, dtype=torch.float64))
            outcomes.append((exponent(found), probability))
    for limit in {found for found, _ in outcomes if found}:
        tail = sum(probability for found, probability in outcomes if found >= limit)
        assert tail <= math.exp(-limit) * (1 + 1e-9)


def test_the_linear_complexity_is_that_of_the_shortest_recurrence() -> None:
    def has_recurrence(bits: tuple[int, ...], length: int) -> bool:
        return any(
            all(bits[i] == sum(c * bits[i - 1 - j] for j, c in enumerate(taps)) % 2 for i in range(length, len(bits)))
            for taps in itertools.product((0, 1), repeat=length)
        )

    for bits in itertools.product((0, 1), repeat=7):
        shortest = next(length for length in range(len(bits) + 1) if has_recurrence(bits, length))
        assert linear_complexity([bool(bit) for bit in bits]) == shortest


@pytest.mark.parametrize("p", [0.5, 0.1])
def test_no_exponent_is_exceeded_more_often_than_it_allows(p: float) -> None:
    torch.manual_seed(28)
    draws = 80
    exceeded: dict[str, list[bool]] = {}
    for _ in range(draws):
        for verdict in judged(choices(torch.rand(8, 40) < p, p)):
            if verdict.metrics:
                name = next(iter(verdict.metrics)).translate(str.maketrans("", "", "0123456789- "))
                exceeded.setdefault(name, []).append(exponent(verdict) > math.log(2 * 10))
    # At an exponent of ln 20 one draw in ten; five standard deviations of 8 of 80 are 14.
    assert len(exceeded) > 10
    assert all(sum(found) <= 0.1 * len(found) + 5 * (0.1 * len(found)) ** 0.5 for found in exceeded.values())


def test_half_of_the_elements_may_be_unknown() -> None:
    torch.manual_seed(29)
    x = torch.randn(64, 256).relu()
    assert outcome("dropout", F.dropout(x, 0.3), x, 0.3, True) == "pass"
    mask = torch.rand(64, 256) >= 0.3
    mask[:, 128:] = mask[:, :128].flip(1)
    assert outcome("dropout", x * mask / 0.7, x, 0.3, True) == "fail"
