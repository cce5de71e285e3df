"""Which calls are screened as attention, and their groups of heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.extensions.screening.attention_sketches import Attention, attention_of

L, D = 256, 32


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def attention(*args: Any, **kwargs: Any) -> Attention | None:
    return attention_of("scaled_dot_product_attention", Arguments(args, kwargs, frozenset()))


def test_operands_are_found_by_position_and_by_name() -> None:
    query, key, value = x(2, 4, L, D), x(2, 4, L + 1, D), x(2, 4, L + 1, 2 * D)
    found = attention(query, value=value, key=key, scale=0.5)
    assert found is not None
    assert found.paths == ("args.0", "kwargs.key", "kwargs.value")
    assert (found.query is query, found.key is key, found.value is value) == (True, True, True)
    assert (found.scale, found.shape) == (0.5, (2, 4, L, 2 * D))
    assert found.operations == 2 * 8 * L * (L + 1) * 3 * D


def test_a_causal_call_takes_the_operations_of_what_is_seen() -> None:
    found = attention(x(8, L, D), x(8, L, D), x(8, L, D), is_causal=True)
    assert found is not None
    assert found.operations == 2 * 8 * L * (L + 1) // 2 * 2 * D


@pytest.mark.parametrize("mask_shape", [(L, L), (1, L), (16, L, L), (2, 1, L, L), (1, 16, 1, L), (2, 16, L, L)])
def test_groups_have_their_heads_keys_and_masks(mask_shape: tuple[int, ...]) -> None:
    query, key, value, mask = x(2, 16, L, D), x(2, 4, L, D), x(2, 4, L, D), x(*mask_shape)
    found = attention(query, key, value, mask, enable_gqa=True)
    assert found is not None
    places = list(found.groups())
    assert len(places) == 8
    whole = mask.expand(2, 16, L, L)
    assert torch.equal(found.heads(query, places[6]), query[1, 8:12])
    assert torch.equal(found.heads(key, places[6]), key[1, 2:3])
    masks = found.masks(places[6])
    assert masks is not None
    assert torch.equal(masks, whole[1, 8:12])
    part = found.part(Arguments((query, key, value, mask), {"enable_gqa": True}, frozenset()), places[6])
    exact = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    alone = torch.nn.functional.scaled_dot_product_attention(*part.args, **part.kwargs)
    torch.testing.assert_close(alone, exact[1:2, 8:12])


LEFT_ALONE: dict[str, Callable[[], Attention | None]] = {
    "another operation": lambda: attention_of("softmax", Arguments((x(8, L, D),), {}, frozenset())),
    "a missing operand": lambda: attention(x(8, L, D), x(8, L, D)),
    "a new argument": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), sink=x(8)),
    "float64": lambda: attention(*(x(8, L, D, dtype=torch.float64) for _ in range(3))),
    "two dtypes": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D, dtype=torch.float16)),
    "dropout": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), dropout_p=0.1),
    "two masks": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), x(L, L), is_causal=True),
    "a mask of integers": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), torch.ones(L, L, dtype=torch.int32)),
    "a mask that does not fit": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), x(L, L - 1)),
    "keys that do not fit": lambda: attention(x(8, L, D), x(8, L, D + 1), x(8, L, D)),
    "fewer values than keys": lambda: attention(x(8, L, D), x(8, L, D), x(8, L - 1, D)),
    "shared keys unasked": lambda: attention(x(1, 16, L, D), x(1, 8, L, D), x(1, 8, L, D)),
    "heads that cannot share": lambda: attention(x(1, 12, L, D), x(1, 8, L, D), x(1, 8, L, D), enable_gqa=True),
    "few heads": lambda: attention(x(7, L, D), x(7, L, D), x(7, L, D)),
    "few rows": lambda: attention(x(8, L - 1, D), x(8, L, D), x(8, L, D)),
    "narrow heads": lambda: attention(x(8, L, 8), x(8, L, 8), x(8, L, 8)),
    "expanded keys": lambda: attention(x(8, L, D), x(1, L, D).expand(8, L, D), x(8, L, D)),
    "a scale of NaN": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), scale=float("nan")),
    "a scale of zero": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), scale=0.0),
    "a negative scale": lambda: attention(x(8, L, D), x(8, L, D), x(8, L, D), scale=-1.0),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_calls_are_no_attention_that_is_screened(what: str) -> None:
    assert LEFT_ALONE[what]() is None
