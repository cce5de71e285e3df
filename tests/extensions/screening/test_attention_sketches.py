"""Sums of attention and its gradients, held to attention that is computed in full."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.screening.attention_sketches import Attention, Came, drawn_sketches, summed


@settings(max_examples=30)
@given(
    st.sampled_from(["causal", "bool", "added", "none"]),
    st.integers(1, 3),
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(0.01, 2),
    st.integers(0, 2**32),
)
def test_sums_are_those_of_attention_and_its_gradients(
    masked: str, shared: int, rows: int, keys: int, width: int, value_width: int, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def x(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    query, key, value = x(2, 2 * shared, rows, width), x(2, 2, keys, width), x(2, 2, keys, value_width)
    masks: dict[str, torch.Tensor] = {"added": x(2 * shared, 1, keys), "bool": x(rows, keys) > 0}
    if masked == "bool":
        masks["bool"][:, 0] = True
    mask, is_causal = masks.get(masked), masked == "causal"
    attention = Attention(query, key, value, ("args.0", "args.1", "args.2"), mask, is_causal, scale)
    options: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "enable_gqa": True}
    leaves = [each.double().requires_grad_() for each in (query, key, value)]
    added = mask if mask is None or mask.dtype == torch.bool else mask.double()
    output = torch.nn.functional.scaled_dot_product_attention(*leaves, added, **options)
    arriving = x(*output.shape)
    gradients = torch.autograd.grad(output, leaves, arriving.double())
    exact = dict(zip(("output", "query", "key", "value"), (output.detach(), *gradients), strict=True))
    for place in attention.groups():
        sketches = drawn_sketches(attention, generator)
        sums = summed(attention, place, sketches, Came(arriving, output.detach().float()))
        assert sums.keys() == exact.keys()
        for name, whole in exact.items():
            expected = (attention.heads(whole, place) @ sketches.of(name)).mT
            torch.testing.assert_close(sums[name].value, expected, rtol=1e-9, atol=1e-9)
        assert torch.equal(summed(attention, place, sketches, None)["output"].value, sums["output"].value)


@pytest.mark.parametrize(("width", "columns"), [(128, 16), (70, 16), (32, 8), (33, 9), (3, 1)])
def test_each_column_has_a_sign_and_one_tile_of_which_a_row_has_four(width: int, columns: int) -> None:
    x = torch.randn(1, 2, 5, width)
    sketches = drawn_sketches(Attention(x, x, x, ("", "", ""), None, False, 1.0), torch.Generator().manual_seed(0))
    expected = torch.zeros(width, -(-width // columns))
    for column in range(width):
        expected[column, column // columns] = 1
    assert torch.equal((sketches.width != 0).double(), expected.double())
    assert width < 32 or {*sketches.width.sign().unique().tolist()} == {-1.0, 0.0, 1.0}


def test_no_operand_is_changed() -> None:
    query, key, value, arriving = (torch.randn(1, 2, 150, 20).double() for _ in range(4))
    attention = Attention(query, key, value, ("", "", ""), None, True, 0.3)
    kept = [each.clone() for each in (query, key, value, arriving)]
    sketches = drawn_sketches(attention, torch.Generator().manual_seed(0))
    for place in attention.groups():
        summed(attention, place, sketches, Came(arriving, arriving))
    assert all(map(torch.equal, kept, (query, key, value, arriving)))


def test_what_the_columns_of_a_row_share_covers_sums_taken_from_a_rounded_result() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value, arriving = (torch.randn(1, 1, 64, 32, generator=generator).double() * 3 for _ in range(4))
    attention = Attention(query, key, value, ("", "", ""), None, True, 32**-0.5)
    scores = (query @ key.mT * attention.scale).masked_fill(torch.ones(64, 64).triu(1).bool(), -torch.inf)
    weights = scores.softmax(-1)
    output = weights @ value
    unit = 2**-9
    ratios: dict[str, list[torch.Tensor]] = {"query": [], "key": []}
    for _ in range(200):
        # A rounding error of one unit of each element of the result, and nothing else.
        wrong = torch.randint(0, 2, output.shape, generator=generator).mul(2).sub(1) * output * unit
        changes = -weights * (arriving * wrong).sum(-1, keepdim=True) * attention.scale
        sketches = drawn_sketches(attention, generator)
        (place,) = attention.groups()
        sums = summed(attention, place, sketches, Came(arriving, output))
        for name, error in (("query", changes @ key), ("key", changes.mT @ query)):
            found = (attention.heads(error, place) @ sketches.of(name)).mT
            ratios[name].append(found.square() / sums[name].shared / unit**2)
    for name, found in ratios.items():
        mean = torch.stack(found).mean(0)
        assert abs(mean.mean() - 1) < 0.1, name
