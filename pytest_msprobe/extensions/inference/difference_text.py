"""What is said of a judged value: how much, for which tokens, and what the difference looks like."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pytest_msprobe.extensions.inference.forward_judge import JudgedValue
from pytest_msprobe.extensions.inference.module_order import ATTENTION_NORM
from pytest_msprobe.extensions.inference.run_values import INPUT, LOGITS, ROTATED
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs

# A factor explains a difference of which it leaves so little, and a difference that is no rounding.
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
        f"limit {judged.limit:.2e} for {judged.dtype} at this depth; largest before it {judged.given:.2e}"
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
    """Say for how many wrong tokens the runs may have chosen other experts."""
    if judged.reordered:
        yield (
            f"for {judged.reordered} of the wrong tokens the routers, which agree within the precision, order the "
            "experts otherwise: how many are chosen is unknown, pass the model's config.json by --msprobe-model-config"
        )


def _tokens(judged: JudgedValue, pairs: TokenPairs) -> Iterator[str]:
    """Say which tokens are wrong, where that says something."""
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
    """Say where the target is the golden run times a factor."""
    measured = judged.measured
    assert measured is not None
    if measured.factor_unexplained < _LEFT:
        yield f"the target is the golden run times {measured.factor:.4g}"
        return
    wrong = np.isin(measured.pairs, judged.wrong)
    if measured.width > 1 and np.mean(measured.unexplained[wrong] < _LEFT) > _EXPLAINED:
        factors = measured.factors[wrong]
        yield f"each token is the golden one times a factor of its own ({factors.min():.3g} to {factors.max():.3g})"
