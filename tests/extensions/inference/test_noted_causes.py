"""Causes of noted log probabilities: each recognised from random logits, and none where there is none."""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.inference.logit_causes import recognized
from pytest_msprobe.extensions.inference.logit_readings import ScoredTokens
from pytest_msprobe.extensions.inference.noted_causes import NotedValues, recognized_by_values

TOKENS, VOCABULARY = 40, 48
LIMIT = 1e-3
seeds = st.integers(0, 2**31)
few = settings(max_examples=12, deadline=None)


def draw(seed, process=lambda logits, generator: logits, *, seen=None, noise=0.0):
    """Return tokens drawn from processed logits, with the logits before that and the float32 values of after it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(TOKENS, VOCABULARY, generator=generator, dtype=torch.float64) * 3
    processed = process(logits, generator)
    logs = processed - processed.exp().sum(dim=1, keepdim=True).log()
    tokens = torch.multinomial(logs.exp(), 1, generator=generator)[:, 0]
    noted = logs[range(TOKENS), tokens].float().double()
    noted = noted + noise * torch.randn(TOKENS, generator=generator, dtype=torch.float64)
    ids, times = seen if seen is not None else (torch.full((TOKENS, 1), -1), torch.zeros(TOKENS, 1))
    return ScoredTokens(logits, tokens, noted, ids, times)


def found(scored):
    return recognized(scored, torch.full((TOKENS,), LIMIT, dtype=torch.float64))


def is_small(scored):
    """Return whether the logits as they are give the noted values, as far as the limit sees."""
    logs = scored.logits.log_softmax(dim=1)[range(TOKENS), scored.tokens]
    return float(((logs - scored.noted).abs() > LIMIT).double().mean()) <= 0.01


def numbers(cause, words):
    """Return the numbers behind words in the causes that are named."""
    return [float(number) for number in re.findall(re.escape(words) + r" (-?[0-9.]+(?:e-?[0-9]+)?)", cause.words)]


@few
@given(seeds, st.floats(0.2, 5.0))
def test_a_temperature_is_estimated(seed, temperature):
    scored = draw(seed, lambda logits, _: logits / temperature)
    assume(not is_small(scored))
    cause = found(scored)
    assert numbers(cause, "temperature") == [pytest.approx(temperature, rel=1e-3)]
    assert cause.left < 1e-6


def keep_k(count, logits, _=None):
    least = np.sort(logits.numpy(), axis=1)[:, -count][:, None]
    return torch.where(logits >= torch.from_numpy(least), logits, -math.inf)


def keep_p(share, logits, _=None):
    """Leave out the least probable tokens that have 1 - share together, as transformers and vLLM do."""
    ascending, order = logits.softmax(dim=1).sort(dim=1)
    is_out = ascending.cumsum(dim=1) <= 1 - share
    is_out[:, -1] = False
    return logits.masked_fill(torch.zeros_like(is_out).scatter(1, order, is_out), -math.inf)


def keep_min(share, logits, _=None):
    probabilities = logits.softmax(dim=1)
    return logits.masked_fill(probabilities < share * probabilities.max(dim=1, keepdim=True).values, -math.inf)


@few
@given(seeds, st.integers(2, 24))
def test_a_top_k_is_counted(seed, count):
    scored = draw(seed, partial(keep_k, count))
    assume(not is_small(scored))
    assert count in numbers(found(scored), "top-k")


@few
@given(seeds, st.sampled_from([0.5, 0.7, 0.8, 0.9, 0.95]))
def test_a_top_p_is_estimated(seed, share):
    scored = draw(seed, partial(keep_p, share))
    assume(not is_small(scored))
    assert pytest.approx(share, abs=0.02) in numbers(found(scored), "top-p")


@few
@given(seeds, st.sampled_from([0.02, 0.05, 0.1, 0.2]))
def test_a_min_p_is_estimated(seed, share):
    scored = draw(seed, partial(keep_min, share))
    assume(not is_small(scored))
    assert pytest.approx(share, rel=0.2) in numbers(found(scored), "min-p")


@few
@given(seeds, st.floats(0.5, 4.0), st.integers(0, VOCABULARY - 1))
def test_a_bias_of_one_token_is_estimated(seed, bias, token):
    scored = draw(
        seed, lambda logits, _: logits.index_add(1, torch.tensor([token]), torch.full((TOKENS, 1), bias).double())
    )
    assume(not is_small(scored) and int((scored.tokens != token).sum()) >= 8)
    (cause,) = re.findall(r"a logit bias: ([0-9.]+) of token ([0-9]+)", found(scored).words)
    assert float(cause[0]) == pytest.approx(bias, rel=1e-3)
    assert int(cause[1]) == token


def test_a_banned_token_is_named():
    scored = draw(
        3, lambda logits, _: logits.index_fill(1, torch.tensor([int(logits.mean(dim=0).argmax())]), -math.inf)
    )
    assert found(scored).words.startswith("with a logit bias: below -10 of token ")


def earlier(seed):
    """Return up to five different earlier tokens of each row, and how often each was drawn."""
    generator = torch.Generator().manual_seed(seed + 1)
    ids = torch.stack([torch.randperm(VOCABULARY, generator=generator)[:5] for _ in range(TOKENS)])
    return ids, torch.randint(1, 4, ids.shape, generator=generator).double()


def penalized(seen, change):
    def process(logits, _):
        logits = logits.clone()
        for row, (ids, times) in enumerate(zip(*seen, strict=True)):
            for token, count in zip(ids.tolist(), times.tolist(), strict=True):
                logits[row, token] = change(float(logits[row, token]), count)
        return logits

    return process


@few
@given(seeds, st.floats(1.05, 2.0))
def test_a_repetition_penalty_is_estimated(seed, penalty):
    seen = earlier(seed)
    scored = draw(seed, penalized(seen, lambda x, _: x / penalty if x > 0 else x * penalty), seen=seen)
    assume(not is_small(scored))
    assert numbers(found(scored), "repetition penalty") == [pytest.approx(penalty, rel=1e-3)]


@few
@given(seeds, st.floats(0.1, 1.9), st.booleans())
def test_presence_and_frequency_penalties_are_distinguished(seed, penalty, is_frequency):
    seen = earlier(seed)
    scored = draw(seed, penalized(seen, lambda x, count: x - penalty * (count if is_frequency else 1)), seen=seen)
    assume(not is_small(scored))
    words = "frequency penalty" if is_frequency else "presence penalty"
    assert numbers(found(scored), words) == [pytest.approx(penalty, rel=1e-3)]


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (lambda logits, _: logits.bfloat16().double(), "with logits rounded to bfloat16"),
        (lambda logits, _: 8 * torch.tanh(logits / 8), "with logits capped by tanh at 8"),
        (lambda x, _: x.index_fill(1, torch.arange(44, 48), -math.inf), "with the first 44 of the vocabulary's 48"),
        (
            lambda logits, _: torch.cat([logits, torch.zeros(TOKENS, 16).double()], dim=1)[:, :],
            "with 16 more columns of logit 0",
        ),
    ],
)  # fmt: skip
def test_a_change_of_the_logits_is_named(process, words):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(TOKENS, VOCABULARY, generator=generator, dtype=torch.float64) * 3
    logs = process(logits, generator).log_softmax(dim=1)
    tokens = torch.multinomial(logs[:, :44].exp(), 1, generator=generator)[:, 0]
    nothing = torch.full((TOKENS, 1), -1), torch.zeros(TOKENS, 1)
    scored = ScoredTokens(logits, tokens, logs[range(TOKENS), tokens], *nothing)
    assert found(scored).words.startswith(words)


def test_other_values_of_a_row_are_named():
    scored = draw(1)
    logs = scored.logits.log_softmax(dim=1)
    of_seven = ScoredTokens(scored.logits, scored.tokens, logs[:, 7], scored.earlier, scored.times)
    greedy = ScoredTokens(scored.logits, scored.tokens, logs.max(dim=1).values, scored.earlier, scored.times)
    raw = ScoredTokens(
        scored.logits, scored.tokens, scored.logits[range(TOKENS), scored.tokens], scored.earlier, scored.times
    )
    assert found(of_seven).words == "read for token 7 at each position"
    assert found(greedy).words == "read for the most probable token of each position"
    assert found(raw).words == "raw logits, not log probabilities"


@few
@given(seeds, st.sampled_from([0.6, 0.7, 0.8, 1.2]), st.sampled_from([0.8, 0.9]))
def test_a_temperature_that_programs_set_is_recognised_with_a_cut(seed, temperature, share):
    scored = draw(seed, lambda logits, _: keep_p(share, logits / temperature))
    cause = found(scored)
    assert temperature in numbers(cause, "temperature")
    assert pytest.approx(share, abs=0.02) in numbers(cause, "top-p")


@few
@given(seeds, st.floats(0.71, 0.74), st.sampled_from([0.6, 0.8, 0.9]))
def test_a_combination_that_is_not_searched_has_no_cause(seed, temperature, share):
    assert found(draw(seed, lambda logits, _: keep_p(share, logits / temperature))) is None


def test_top_p_after_top_k_is_recognised_with_both_numbers():
    cause = found(draw(4, lambda logits, _: keep_p(0.8, keep_k(20, logits))))
    assert numbers(cause, "top-k") == [20]
    assert numbers(cause, "top-p") == [pytest.approx(0.8, abs=0.02)]


@few
@given(seeds)
def test_healthy_values_have_no_cause(seed):
    assert found(draw(seed, noise=LIMIT / 4)) is None


@few
@given(seeds, st.floats(0.01, 2.0))
def test_noise_has_no_cause(seed, noise):
    assert found(draw(seed, noise=noise)) is None


def test_too_few_tokens_have_no_cause():
    scored = draw(2, lambda logits, _: logits / 2)
    three = ScoredTokens(scored.logits[:3], scored.tokens[:3], scored.noted[:3], scored.earlier[:3], scored.times[:3])
    assert recognized(three, torch.full((3,), LIMIT).double()) is None


def values(shifts, seed=0, length=12, change=lambda reference: reference):
    """Return values of requests whose noted ones are so many tokens late; of tokens that were scored only."""
    drawn = np.random.default_rng(seed).uniform(-8, -0.1, (len(shifts), length))
    reference, noted = drawn[:, 2:-2], [np.roll(row, shift)[2:-2] for row, shift in zip(drawn, shifts, strict=True)]
    count = length - 4
    return NotedValues(
        change(np.concatenate(noted)),
        reference.reshape(-1),
        np.full(reference.size, LIMIT),
        np.repeat(np.arange(len(shifts)), count),
        np.tile(np.arange(count), len(shifts)),
        [f"r{number}" for number in range(len(shifts))],
    )


@few
@given(seeds, st.integers(-2, 2).filter(bool))
@example(0, 1)
def test_values_of_neighbouring_tokens_are_a_shift(seed, shift):
    words = {1: "one token late", -1: "one token early", 2: "2 tokens late", -2: "2 tokens early"}[shift]
    assert recognized_by_values(values([shift, shift], seed)).words == f"noted {words}"


def test_requests_with_shifts_of_their_own_are_positions_that_count_padding():
    words = recognized_by_values(values([0, 2, -1])).words
    assert words == "noted at positions that count padding: request r1 2 tokens late, request r2 one token early"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (np.negative, "losses, with the sign changed"),
        (np.exp, "probabilities, not their logarithms"),
        (lambda x: x / math.log(2), "logarithms to base 2"),
        (lambda x: torch.from_numpy(x).bfloat16().double().numpy(), "rounded to bfloat16"),
    ],
)
def test_another_scale_is_named(change, words):
    assert recognized_by_values(values([0, 0, 0, 0], change=change)).words == words


@few
@given(seeds)
def test_other_values_are_no_shift(seed):
    other = np.random.default_rng(seed + 1).uniform(-8, -0.1, 16)
    healthy = values([0, 0], seed)
    assert recognized_by_values(healthy) is None
    unrelated = NotedValues(other, healthy.reference, healthy.limit, healthy.request, healthy.position, healthy.names)
    assert recognized_by_values(unrelated) is None
