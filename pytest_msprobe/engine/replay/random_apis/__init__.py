"""Judging APIs whose results are random by properties that random results must have.

Two runs of such an API differ, so there is no golden result. What can be judged is certain (a kept element is
the input scaled, an index is in range) or a matter of probability (how many elements were dropped). The latter
is judged by bounds that hold at every size, such that a healthy generator fails a check with a probability below
1e-9; how small a fault is found depends on the number of elements alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_msprobe.engine.replay.random_apis import choosing, distributions, drawing, masking, slopes, unjudged
from pytest_msprobe.engine.replay.random_apis.arguments import REQUIRED
from pytest_msprobe.engine.replay.random_apis.properties import RandomProperty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["RandomProperty", "random_property"]

_BUILDERS: dict[str, Callable[[str, Sequence[Any], Mapping[str, Any]], RandomProperty | None]] = {
    **dict.fromkeys(
        "dropout dropout_ native_dropout feature_dropout feature_dropout_ dropout1d dropout2d dropout3d".split(),
        masking.dropout,
    ),
    **dict.fromkeys("_npu_dropout _fused_dropout".split(), masking.unconditional_dropout),
    **dict.fromkeys(
        "alpha_dropout alpha_dropout_ feature_alpha_dropout feature_alpha_dropout_".split(), masking.alpha_dropout
    ),
    **dict.fromkeys("rrelu rrelu_ rrelu_with_noise rrelu_with_noise_".split(), slopes.rrelu),
    **dict.fromkeys("bernoulli bernoulli_".split(), choosing.bernoulli),
    "multinomial": choosing.multinomial,
    "randperm": choosing.randperm,
    "poisson": choosing.poisson,
    "gumbel_softmax": choosing.gumbel_softmax,
    **dict.fromkeys("rand rand_like".split(), drawing.rand),
    **dict.fromkeys("randn randn_like".split(), drawing.randn),
    **dict.fromkeys("uniform uniform_".split(), drawing.uniform),
    "normal": drawing.normal,
    **dict.fromkeys("normal_ normal_functional".split(), drawing.normal_in_place),
    "randint": drawing.randint,
    "randint_like": drawing.randint_like,
    **dict.fromkeys("random random_".split(), drawing.random),
    **dict.fromkeys("exponential exponential_".split(), drawing.one_parameter(distributions.exponential, 1.0)),
    **dict.fromkeys("geometric geometric_".split(), drawing.one_parameter(distributions.geometric, REQUIRED)),
    **dict.fromkeys(
        "cauchy cauchy_".split(), drawing.two_parameters(distributions.cauchy, ("median", "sigma"), (0.0, 1.0))
    ),
    **dict.fromkeys(
        "log_normal log_normal_".split(),
        drawing.two_parameters(distributions.log_normal, ("mean", "std"), (1.0, 2.0)),
    ),
    "scaled_dot_product_attention": unjudged.attention,
    "npu_fusion_attention": unjudged.fused_attention,
    "multi_head_attention_forward": unjudged.multi_head_attention,
    **dict.fromkeys("lstm gru rnn_tanh rnn_relu".split(), unjudged.recurrent),
    **dict.fromkeys(
        """fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices""".split(),
        unjudged.fractional_pooling,
    ),
    **dict.fromkeys(
        "empty empty_like empty_strided empty_permuted empty_with_format new_empty new_empty_strided".split(),
        unjudged.undefined,
    ),
}


def random_property(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return what the result of this call must be like, or None where it is not random.

    ``api`` is the API's name without its type, such as ``dropout`` or ``bernoulli_``; a namespace before it and
    an overload after it may stay (``nn.dropout2d``, ``bernoulli.p``). ``args`` and ``kwargs`` are the call's
    inputs before the call, tensors on the CPU. A call that happens not to be random, such as dropout outside of
    training, gives None too.

    Raises TypeError where the call lacks a required argument.
    """
    for name in reversed(api.split(".")):
        if name in _BUILDERS:
            return _BUILDERS[name](name, args, kwargs)
    return None
