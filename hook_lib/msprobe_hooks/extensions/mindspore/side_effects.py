"""Side effects of a call of MindSpore, as far as names and primitives show them."""

from __future__ import annotations

from typing import Any

from mindspore.ops import Primitive

from msprobe_hooks.dump.names import is_distributed

_DRAWING = frozenset(
    """
    bernoulli bernoulli_ choice_with_mask dropout dropout1d dropout2d dropout3d exponential_ fractional_max_pool3d gamma
    gumbel_softmax laplace log_uniform_candidate_sampler multinomial multinomial_with_replacement normal normal_ rand
    rand_like randint randint_like randn randn_like random_ random_categorical random_gamma random_poisson randperm
    rrelu shuffle standard_laplace standard_normal uniform uniform_ uniform_candidate_sampler
    """.split()
)


def why_once(called: str, function: Any) -> str | None:
    """Return why a call cannot be made a second time without the program noticing, None where it can.

    ``called`` is its name, ``Type.api``, and ``function`` what is called.
    """
    kind, _, api = called.partition(".")
    if kind == "Jit":
        return "it is compiled, and may change parameters that are not its arguments"
    if is_distributed(called):
        return "it communicates"
    # MindSpore's kernels keep generators of their own, whose states cannot be read.
    if api in _DRAWING or (isinstance(function, Primitive) and "side_effect_hidden" in function.attrs):
        return "it draws random numbers"
    return None
