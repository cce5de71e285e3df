"""Log probabilities of tokens in both runs: divergence, effects on a clipped objective, and messages.

``r`` is the ratio of a token's probabilities, the trainer's by the engine's. With tokens drawn by the engine the mean
of ``k1 = -log r`` and of ``k3 = r - 1 - log r`` estimate KL(engine, trainer) without bias, k3 with less variance and
never below 0 (J. Schulman, "Approximating KL Divergence", 2020). PPO drops the gradient of tokens whose ratio is
outside ``1 - clip`` to ``1 + clip`` on the side to which it would move them (arXiv 1707.06347).
``k2 = (log r)^2 / 2`` is biased and has the least variance (Schulman). ``r`` is also the weight of importance sampling,
whose effective sample size is ``(sum r)^2 / sum r^2`` (Kong, 1992).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from pytest_msprobe.extensions.inference.forward_judge import JudgedValue
from pytest_msprobe.extensions.inference.logit_readings import ScoredTokens
from pytest_msprobe.extensions.inference.run_values import ATTENTION_NORM, INPUT, LOGITS, ROTATED, RunValues
from pytest_msprobe.extensions.inference.token_errors import Numbers, aligned_rows
from pytest_msprobe.extensions.inference.token_layout import Integers, UnalignedError, row_places
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs

# So many logits are in memory as float64, and of so many a cause is looked for: for 14 tokens of 151 936 logits that
# takes 20 s where there is none.
_ELEMENTS = 2**22
_SAMPLE = 2**21


@dataclass(frozen=True, slots=True)
class LogProbabilities:
    """Log probabilities of the same tokens in target (engine) and golden run (trainer).

    ``pairs`` are the numbers of the pairs of tokens of which each is the log probability; ``divergence`` is
    KL(engine, trainer) over the whole vocabulary at each, empty where logits are not recorded. ``source`` says where
    they are from; a token is ``ahead`` positions behind its pair: logits are of the token that follows.
    """

    pairs: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    target: Numbers
    golden: Numbers
    divergence: Numbers
    source: str
    ahead: int

    @property
    def log_ratio(self) -> Numbers:
        """Log r of each token."""
        return self.golden - self.target

    @property
    def k1(self) -> float:
        """The mean of -log r."""
        return float(np.mean(-self.log_ratio))

    @property
    def k2(self) -> float:
        """The mean of half the square of log r."""
        return float(np.mean(self.log_ratio**2) / 2)

    @property
    def k3(self) -> float:
        """The mean of r - 1 - log r."""
        return float(np.mean(np.expm1(self.log_ratio) - self.log_ratio))

    @property
    def weights(self) -> Numbers:
        """The importance weight r of each token."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_ratio)

    @property
    def effective_share(self) -> float:
        """The effective number of tokens of the weighted ones, as a share of all."""
        weights = self.weights
        with np.errstate(all="ignore"):
            return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))

    def by_request(self, pairs: TokenPairs) -> list[tuple[int, Numbers]]:
        """Return the number of each request with log r of its tokens."""
        requests = pairs.request[self.pairs]
        return [(int(request), self.log_ratio[requests == request]) for request in np.unique(requests)]

    def clipped(self, clip: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which tokens have a ratio outside of 1 - clip to 1 + clip."""
        ratio = np.exp(self.log_ratio)
        return ~((ratio >= 1 - clip) & (ratio <= 1 + clip))

    def worst(self, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return the places of the tokens whose log probabilities are furthest apart, the furthest first."""
        distance = np.nan_to_num(np.abs(self.log_ratio), nan=np.inf)
        return np.argsort(-distance, kind="stable")[:count]


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity of all tokens, in words and numbers, and whether it is within what unclipped tokens reach at most."""

    text: str
    metrics: Mapping[str, float]
    is_within: bool


def measured_kl(compared: LogProbabilities, clip: float) -> Measured:
    """Return the estimates of KL(engine, trainer). The limit of k3 is its value where all tokens have r = 1 - clip."""
    limit = -clip - math.log1p(-clip)
    metrics = {"k1": compared.k1, "k2": compared.k2, "k3": compared.k3}
    text = ", ".join(f"{name} {number:.3e}" for name, number in metrics.items())
    if len(compared.divergence):
        metrics["divergence"] = float(compared.divergence.mean())
        text += f", over the vocabulary {metrics['divergence']:.3e}"
    text = f"KL of engine and trainer by {text}; limit of k3 {limit:.3e}, of tokens at the border of the clip"
    return Measured(text, metrics, compared.k3 <= limit)


def measured_weights(compared: LogProbabilities, clip: float, pairs: TokenPairs) -> Measured:
    """Return the importance weights of tokens, and of whole requests, which are products of these.

    The limit of the effective share is ``1 - clip^2``, the least that weights from 1 - clip to 1 + clip have
    (Kantorovich's inequality).
    """
    weights, limit = compared.weights, 1 - clip * clip
    sums = {request: float(logs.sum()) for request, logs in compared.by_request(pairs)}
    worst = max(sums, key=lambda request: abs(sums[request]))
    metrics = {
        "mean_weight": float(weights.mean()),
        "least_weight": float(weights.min()),
        "greatest_weight": float(weights.max()),
        "effective_share": compared.effective_share,
    }
    text = (
        f"importance weights of tokens {metrics['least_weight']:.4g} to {metrics['greatest_weight']:.4g}, mean "
        f"{metrics['mean_weight']:.4g}; effective share of tokens {compared.effective_share:.4g}, limit {limit:.4g}; "
        f"furthest request {pairs.requests[worst]}, weight {np.exp(min(sums[worst], 700.0)):.4g} as a whole"
    )
    return Measured(text, metrics, compared.effective_share >= limit)


def log_probabilities(target: RunValues, golden: RunValues, pairs: TokenPairs) -> LogProbabilities | None:
    """Return the log probabilities of the tokens that both runs noted, else of those that one noted, else of all.

    What a run did not note follows from its logits. A noted one is that of the token itself; logits give that of the
    next token; of vocabularies of other sizes each is by its own. None where no token has one in both runs. Raises
    UnalignedError or DumpError as `aligned_rows` does.
    """
    is_noted = ~np.isnan(pairs.logprobs)
    both = np.flatnonzero(is_noted.all(axis=1))
    if len(both):
        own, other = pairs.logprobs[both].T
        return LogProbabilities(both, own, other, np.empty(0), "noted by both runs", 0)
    if is_noted.any():
        sides = [
            np.where(is_noted[:, side], pairs.logprobs[:, side], by_logits(run, places, pairs))
            for side, (run, places) in enumerate(((target, pairs.target), (golden, pairs.golden)))
        ]
        comparable = np.flatnonzero(is_noted.any(axis=1) & ~np.isnan(sides).any(axis=0))
        if len(comparable):
            noting, other_run = ("target", "golden run") if is_noted[comparable, 0].any() else ("golden run", "target")
            source = f"noted by the {noting}, from the logits of the {other_run}"
            return LogProbabilities(comparable, sides[0][comparable], sides[1][comparable], np.empty(0), source, 0)
    try:
        return _by_both_logits(target, golden, pairs)
    except UnalignedError:
        sides = [by_logits(*of_run, pairs) for of_run in ((target, pairs.target), (golden, pairs.golden))]
        comparable = np.flatnonzero(~np.isnan(sides).any(axis=0))
        if not len(comparable):
            raise
        widths = " and ".join(str(run.own_widths.get(LOGITS)) for run in (target, golden))
        source = f"each from its own logits, of {widths} columns"
        return LogProbabilities(comparable, sides[0][comparable], sides[1][comparable], np.empty(0), source, 0)


def _by_both_logits(target: RunValues, golden: RunValues, pairs: TokenPairs) -> LogProbabilities | None:
    if not (target.has(LOGITS) and golden.has(LOGITS)):
        return None
    blocks: list[tuple[Integers, Numbers, Numbers, Numbers]] = []
    for numbers, mine, theirs in aligned_rows(LOGITS, target, golden, pairs):
        following = pairs.next_token[numbers]
        is_comparable = (following >= 0) & (following < mine.shape[1])
        if not is_comparable.any():
            continue
        rows = torch.from_numpy(np.flatnonzero(is_comparable))
        logs = [torch.log_softmax(logits[rows], dim=1) for logits in (mine, theirs)]
        place = torch.from_numpy(following[is_comparable])[:, None]
        # Of tokens that both rule out, 0 * (-inf + inf) is nothing.
        divergence = (logs[0].exp() * (logs[0] - logs[1])).nan_to_num(nan=0.0, posinf=np.inf).sum(dim=1)
        own, other = (logits.gather(1, place)[:, 0].numpy() for logits in logs)
        blocks.append((numbers[is_comparable], own, other, divergence.numpy()))
    if not blocks:
        return None
    pairs_of, own, other, whole = (np.concatenate(logits) for logits in zip(*blocks, strict=True))
    return LogProbabilities(pairs_of, own, other, whole, "from the logits", 1)


def by_logits(run: RunValues, places: Integers, pairs: TokenPairs, *, is_shifted: bool = True) -> Numbers:
    """Return the log probability of each token by a run's logits of the token before it, NaN where it has none.

    ``places`` are pass and row of each pair's token in the run. Where labels are not ``is_shifted``, it is by the
    logits of the token itself. Raises UnalignedError, DumpError.
    """
    logprobs = np.full(len(pairs), np.nan)
    rows = pairs.before if is_shifted else np.arange(len(pairs))
    predicted = np.flatnonzero((rows >= 0) & (pairs.token >= 0))
    for at, logits in _logit_rows(run, places, rows[predicted]):
        own = predicted[at]
        is_column = pairs.token[own] < logits.shape[1]
        tokens = torch.from_numpy(pairs.token[own][is_column])[:, None]
        logs = torch.log_softmax(logits[torch.from_numpy(is_column)], dim=1)
        logprobs[own[is_column]] = logs.gather(1, tokens)[:, 0].numpy()
    return logprobs


def scored_tokens(run: RunValues, places: Integers, pairs: TokenPairs, noted: Numbers) -> ScoredTokens | None:
    """Return some of the tokens that have a noted value with the logits before them, None where none has logits.

    They are spread over all of them, as many as fit into memory. ``noted`` has a value for each pair, else NaN.
    Raises UnalignedError, DumpError.
    """
    rows = pairs.before
    predicted = np.flatnonzero((rows >= 0) & (pairs.token >= 0) & ~np.isnan(noted))
    width = run.own_widths.get(LOGITS, 1)
    predicted = predicted[:: max(math.ceil(len(predicted) * width / _SAMPLE), 1)]
    blocks = [*_logit_rows(run, places, rows[predicted])]
    sample = predicted[np.concatenate([at for at, _ in blocks])] if blocks else predicted[:0]
    if not len(sample):
        return None
    logits = torch.cat([logits for _, logits in blocks])
    earlier, times = _earlier(pairs, sample, logits.shape[1])
    return ScoredTokens(logits, torch.from_numpy(pairs.token[sample]), torch.from_numpy(noted[sample]), earlier, times)


def _earlier(pairs: TokenPairs, sample: Integers, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the different tokens before each token of a sample, and how often each of them was drawn."""
    before: list[tuple[Integers, Integers]] = []
    is_drawn = ~np.isnan(pairs.logprobs).all(axis=1)
    for pair in sample:
        is_earlier = (pairs.request == pairs.request[pair]) & (pairs.position < pairs.position[pair])
        tokens = np.unique(pairs.token[is_earlier])
        if is_earlier.sum() < pairs.position[pair] or ((tokens < 0) | (tokens >= width)).any():
            tokens = tokens[:0]
        drawn = pairs.token[is_earlier & is_drawn]
        before.append((tokens, np.array([(drawn == token).sum() for token in tokens], dtype=np.int64)))
    most = max(len(tokens) for tokens, _ in before) or 1
    ids, times = np.full((len(sample), most), -1), np.zeros((len(sample), most))
    for row, (tokens, counts) in enumerate(before):
        if len(tokens):
            ids[row], times[row] = tokens[0], counts[0]
            ids[row, : len(tokens)], times[row, : len(tokens)] = tokens, counts
    return torch.from_numpy(ids), torch.from_numpy(times)


def _logit_rows(run: RunValues, places: Integers, rows: Integers) -> Iterator[tuple[Integers, torch.Tensor]]:
    """Yield which of the pairs ``rows`` have logits in a run, and these as float64, a block of a pass at a time."""
    numbers = np.unique(places[rows, 0]) if run.has(LOGITS) else ()
    for number in numbers:
        layout = run.passes[number].layout
        logits = run.rows(LOGITS, number, run.own_widths.get(LOGITS))
        if logits is None or layout is None:
            continue
        own = np.flatnonzero(places[rows, 0] == number)
        at = row_places(len(logits), layout)[places[rows[own], 1]]
        own, at = own[at >= 0], at[at >= 0]
        length = max(_ELEMENTS // logits.shape[1], 1)
        for first in range(0, len(own), length):
            part = slice(first, first + length)
            yield own[part], logits[torch.from_numpy(at[part])].double()


# Choices: a factor explains a difference of which it leaves so little, for so many of the tokens.
_LEFT = 0.1
_EXPLAINED = 0.9

# What to look at, by how a name ends.
_ADVICE = (
    (ROTATED, "check theta, scaling and positions of the rotary embedding"),
    (("rotary_emb.cos", "rotary_emb.sin"), "check theta, scaling and positions of the rotary embedding"),
    ((f"o_proj{INPUT}",), "this is what attention returns: check mask, scale, window and KV cache, and the rotary "
     "embedding where it is not among the items"),
    ((f"down_proj{INPUT}",), "this is the activation of gate and up: check the activation function"),
    ((f"{ATTENTION_NORM}{INPUT}", f"post_attention_layernorm{INPUT}", f"norm{INPUT}"), "this is the residual stream: "
     "check what is added to it, and how the block before it is scaled"),
    (("norm", "layernorm"), "check epsilon, weight and whether 1 is added to it"),
    (("mlp.gate",), "this is the router: check its dtype and weight"),
    (("mlp.experts", "mlp"), "check which experts are chosen, and how their weights are normalised and scaled"),
    (("_proj",), "what it was given agrees: check its weight, and whether it was synchronised (--msprobe-checkpoint "
     "compares weights)"),
    ((LOGITS,), "check tied weights, scaling and the vocabulary's padding"),
)  # fmt: skip


def reason(judged: JudgedValue, pairs: TokenPairs) -> str:
    """Return one line on a value that differs."""
    text = (
        f"relative error {judged.error:.2e} (median {judged.median:.2e}), worst at {pairs.label(judged.worst or 0)}; "
        f"limit {judged.limit:.2e} for {judged.dtype} at this depth; largest before it {judged.input_error:.2e}"
    )
    return "; ".join([text, *_dtypes(judged), *_tokens(judged, pairs), *_factors(judged), *_experts(judged)])


def advice(judged: JudgedValue) -> str:
    """Return what to check where a difference begins."""
    return next((text for endings, text in _ADVICE if judged.name.endswith(endings)), "")


def coarser_in_words(judged: JudgedValue) -> str:
    """Return which dtypes the runs compute a value in."""
    return f"computed in {judged.dtypes[0]}, in the golden run in {judged.dtypes[1]}"


def _dtypes(judged: JudgedValue) -> Iterator[str]:
    if judged.is_coarser:
        yield coarser_in_words(judged)


def _experts(judged: JudgedValue) -> Iterator[str]:
    """Return for how many wrong tokens the runs may have chosen other experts."""
    if judged.reordered:
        yield (
            f"for {judged.reordered} of the wrong tokens the routers, which agree within the precision, order the "
            "experts otherwise: how many are chosen is unknown, pass the model's config.json by --msprobe-model-config"
        )


def _tokens(judged: JudgedValue, pairs: TokenPairs) -> Iterator[str]:
    """Return which tokens are wrong, where that says something."""
    assert judged.measured is not None
    measured = judged.measured.pairs
    wrong = np.asarray(judged.wrong, dtype=np.int64)
    if len(wrong) == len(measured):
        yield f"all {len(measured)} tokens"
        return
    text = f"{len(wrong)} of {len(measured)} tokens"
    right = np.setdiff1d(measured, wrong)
    decoded = pairs.length == 1
    first = int(pairs.position[wrong].min())
    if decoded[wrong].all() and not decoded[right].any():
        text += ", those that were decoded one by one"
    elif not decoded[wrong].any() and decoded[right].all():
        text += ", those of the prefill"
    elif first > pairs.position[right].max(initial=-1):
        text += f", all from position {first} on"
    elif first:
        text += f", none before position {first}"
    yield text


def _factors(judged: JudgedValue) -> Iterator[str]:
    """Return where the target is the golden run times a factor."""
    measured = judged.measured
    assert measured is not None
    if measured.factor_unexplained < _LEFT:
        yield f"the target is the golden run times {measured.factor:.4g}"
        return
    wrong = np.isin(measured.pairs, judged.wrong)
    if measured.width > 1 and np.mean(measured.unexplained[wrong] < _LEFT) > _EXPLAINED:
        factors = measured.factors[wrong]
        yield f"each token is the golden one times a factor of its own ({factors.min():.3g} to {factors.max():.3g})"
