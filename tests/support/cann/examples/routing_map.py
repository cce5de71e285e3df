"""Calls of the operators that route tokens by a map of tokens and experts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

TOKENS, CHOICES, EXPERTS, WIDTH, CAPACITY = 5, 2, 4, 6, 3


def _map(generator: torch.Generator) -> Tensor:
    """Send each token to as many experts."""
    return (torch.rand(TOKENS, EXPERTS, generator=generator).argsort(1).argsort(1) < CHOICES).to(torch.int8)


def _probs(generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(TOKENS, EXPERTS, generator=generator).to(dtype)


def _places(routing_map: Tensor) -> Tensor:
    """Where the copies of the tokens are, in the order of the tokens."""
    owners = routing_map.bool().T.nonzero()[:, 1]
    return owners.argsort(stable=True).int()


def _filled(generator: torch.Generator) -> Tensor:
    """Different tokens for each expert, as many as it takes."""
    return torch.cat([torch.randperm(TOKENS, generator=generator)[:CAPACITY] for _ in range(EXPERTS)]).int()


def _permute(generator: torch.Generator, *, weighted: bool, padded: bool) -> Call:
    tokens, wanted = draw(generator, TOKENS, WIDTH), EXPERTS * CAPACITY if padded else TOKENS * CHOICES
    probs = _probs(generator) if weighted else None
    kwargs = {"probs": probs, "num_out_tokens": wanted, "drop_and_pad": padded}
    return Call((tokens, _map(generator)), kwargs, differentiate=True)


def _permute_grad(generator: torch.Generator, *, weighted: bool, padded: bool) -> Call:
    routing_map = _map(generator)
    places = _filled(generator) if padded else _places(routing_map)
    grad = draw(generator, len(places), WIDTH, dtype=torch.float16)
    of_probs = draw(generator, len(places), dtype=torch.float16) if weighted else None
    return Call((grad, of_probs, places, routing_map, EXPERTS, TOKENS, padded))


def _unpermute(generator: torch.Generator, *, weighted: bool, padded: bool) -> Call:
    routing_map = _map(generator)
    places = _filled(generator) if padded else _places(routing_map)
    tokens = draw(generator, len(places), WIDTH, dtype=torch.bfloat16)
    weights = {"probs": _probs(generator, torch.bfloat16), "routing_map": routing_map} if weighted else {}
    return Call((tokens, places, [TOKENS, WIDTH]), {**weights, "drop_and_pad": padded}, differentiate=True)


def _unpermute_grad(generator: torch.Generator, *, weighted: bool, padded: bool) -> Call:
    routing_map = _map(generator)
    grad = draw(generator, TOKENS, WIDTH)
    if padded:
        owners, rows = _filled(generator).sort(stable=True)
    else:
        rows, owners = _places(routing_map), torch.arange(TOKENS).repeat_interleave(CHOICES)
    indices = (rows.int(), owners.int() if padded else rows.int())
    weights = (None, None, None)
    if weighted:
        weights = (routing_map, draw(generator, len(rows), WIDTH), _probs(generator))
    return Call((grad, *indices, *weights, padded, [TOKENS, WIDTH]))


def _each_mode(name: str, example: Callable[..., Call]) -> dict[str, Callable[[torch.Generator], Call]]:
    return {
        name: lambda g: example(g, weighted=True, padded=False),
        f"{name}-unweighted": lambda g: example(g, weighted=False, padded=False),
        f"{name}-padded": lambda g: example(g, weighted=True, padded=True),
    }


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    **_each_mode("npu_moe_token_permute_with_routing_map", _permute),
    **_each_mode("npu_moe_token_permute_with_routing_map_grad", _permute_grad),
    **_each_mode("npu_moe_token_unpermute_with_routing_map", _unpermute),
    **_each_mode("_npu_moe_token_unpermute_with_routing_map", _unpermute),
    **_each_mode("npu_moe_token_unpermute_with_routing_map_grad", _unpermute_grad),
}
