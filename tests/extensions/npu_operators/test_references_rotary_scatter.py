"""Rotary embeddings, rows written by index, packed signs and further activations, against loops over elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.layers.activation import npu_clipped_swiglu, npu_gelu_mul
from pytest_msprobe.extensions.npu_operators.layers.convolution import npu_convolution_transpose
from pytest_msprobe.extensions.npu_operators.layers.normalization import npu_group_norm_swish
from pytest_msprobe.extensions.npu_operators.layers.rotary import (
    npu_apply_rotary_pos_emb,
    npu_interleave_rope,
    npu_mrope,
    npu_rotary_mul,
)
from pytest_msprobe.extensions.npu_operators.tensors.layout import (
    npu_dtype_cast_,
    npu_indexing,
    npu_sign_bits_pack,
    npu_sign_bits_unpack,
)
from pytest_msprobe.extensions.npu_operators.tensors.placement import (
    npu_gather_sparse_index,
    npu_scatter_nd_update,
    npu_scatter_nd_update_,
    scatter_update,
    scatter_update_,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: object) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-13)


def test_interleaved_rope_sorts_the_pairs_before_it_turns_them() -> None:
    x, cos, sin = draw(2, 3, 2, 6), draw(2, 1, 2, 6, seed=1), draw(2, 1, 2, 6, seed=2)
    expected = np.empty(x.shape)
    for b, n, s in np.ndindex(2, 3, 2):
        for i in range(3):
            even, odd = float(x[b, n, s, 2 * i]), float(x[b, n, s, 2 * i + 1])
            expected[b, n, s, i] = even * cos[b, 0, s, i] - odd * sin[b, 0, s, i]
            expected[b, n, s, i + 3] = odd * cos[b, 0, s, i + 3] + even * sin[b, 0, s, i + 3]
    close(npu_interleave_rope(x, cos, sin), expected)
    inputs = tuple(each.requires_grad_() for each in (x, cos, sin))
    assert torch.autograd.gradcheck(npu_interleave_rope, inputs)


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_a_matrix_of_the_mode_turns_as_the_mode_does(mode: str) -> None:
    x, cos, sin = draw(2, 3, 4, 6), draw(1, 3, 1, 6, seed=1), draw(1, 3, 1, 6, seed=2)
    unit = torch.eye(6, dtype=torch.float64)
    rotate = npu_rotary_mul(unit, torch.zeros(6), torch.ones(6), mode)
    close(npu_rotary_mul(x, cos, sin, "half", rotate), npu_rotary_mul(x, cos, sin, mode))


def test_rotary_embedding_turns_query_and_key_in_place() -> None:
    query, key, cos, sin = (
        draw(2, 3, 4, 6),
        draw(2, 3, 1, 6, seed=1),
        draw(2, 3, 1, 6, seed=2),
        draw(2, 3, 1, 6, seed=3),
    )
    expected = []
    for x in (query, key):
        first, second = x[..., :3].numpy(), x[..., 3:].numpy()
        expected.append(x.numpy() * cos.numpy() + np.concatenate((-second, first), -1) * sin.numpy())
    turned = npu_apply_rotary_pos_emb(query, key, cos, sin)
    assert turned[0] is query
    assert turned[1] is key
    close(query, expected[0])
    close(key, expected[1])


def angle_row(mode: str, section: list[int] | None, i: int) -> int:
    """Which row of positions angle i follows."""
    if section is None:
        return 0
    if mode == "interleave":
        return i % 3 if i < section[1] * 3 else 0
    return next(row for row in range(len(section)) if i < sum(section[: row + 1]))


@pytest.mark.parametrize("rotary_mode", ["half", "interleave", "interleaved"])
@pytest.mark.parametrize(
    ("cache_mode", "section"), [("default", None), ("default", [2, 1, 1]), ("interleave", [2, 1, 1])]
)
def test_multimodal_rope_follows_its_rows_of_positions(
    rotary_mode: str, cache_mode: str, section: list[int] | None
) -> None:
    n, head, tokens = 4, 10, 5
    cache = draw(7, 2 * n)
    positions = torch.randint(0, 7, (3, tokens), generator=torch.Generator().manual_seed(1))
    query, key = draw(tokens, 2 * head, seed=2), draw(tokens, head, seed=3)
    given = positions if section else positions[0]
    found = npu_mrope(
        given, query, key, cache, head, mrope_section=section, rotary_mode=rotary_mode, cache_mode=cache_mode
    )
    for x, turned in zip((query, key), found, strict=True):
        expected = x.numpy().copy()
        for t, h, i in np.ndindex(tokens, x.shape[1] // head, n):
            row = cache[int(positions[angle_row(cache_mode, section, i), t])]
            cos, sin = float(row[i]), float(row[n + i])
            one, two = (h * head + j for j in ((i, i + n) if rotary_mode == "half" else (2 * i, 2 * i + 1)))
            a, b = float(x[t, one]), float(x[t, two])
            expected[t, one], expected[t, two] = a * cos - b * sin, b * cos + a * sin
        close(turned, expected)


@pytest.mark.parametrize("options", [{"rotary_mode": "quarter"}, {"cache_mode": "other", "mrope_section": [1, 1, 1]}])
def test_a_mode_of_multimodal_rope_that_is_none_is_refused(options: dict[str, Any]) -> None:
    positions = torch.zeros((3, 2), dtype=torch.long) if "cache_mode" in options else torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="of npu_mrope is not one of"):
        npu_mrope(positions, draw(2, 6), draw(2, 6), draw(3, 6), 6, **options)


@pytest.mark.parametrize("depth", [1, 2])
def test_updates_go_to_the_places_that_indices_name(depth: int) -> None:
    x = draw(4, 5, 3)
    places = torch.tensor([[3, 1], [0, 4], [3, 0]])[:, :depth]
    updates = draw(*places.shape[:1], *x.shape[depth:], seed=1)
    places, updates = places[:2], updates[:2]
    expected = x.numpy().copy()
    for place, update in zip(places.tolist(), updates.numpy(), strict=True):
        expected[tuple(place)] = update
    close(npu_scatter_nd_update(x, places.int(), updates), expected)
    assert not x.equal(torch.from_numpy(expected))
    assert npu_scatter_nd_update_(x, places, updates) is x
    close(x, expected)


def test_a_cache_is_filled_from_each_entry_s_own_place_on() -> None:
    cache, new = draw(3, 2, 6, 4), draw(2, 2, 2, 4, seed=1)
    expected = cache.numpy().copy()
    for entry, start in enumerate((4, 1)):
        expected[entry, :, start : start + 2] = new[entry]
    starts = torch.tensor([4, 1])
    close(scatter_update(cache, starts, new, -2), expected)
    close(scatter_update(cache, starts, new, 2), expected)
    assert scatter_update_(cache, starts, new, -2) is cache
    close(cache, expected)
    with pytest.raises(NotImplementedError, match="indices_of_two_dimensions"):
        scatter_update(cache, torch.zeros(2, 2), new, -2)


# the example of torch_npu's documentation
def test_a_cache_is_filled_as_in_the_documentation() -> None:
    data = torch.tensor([[[[1.0] * 8, [2.0] * 8]]])
    assert scatter_update(data, torch.tensor([1]), torch.full((1, 1, 1, 8), 3.0), -2)[0, 0, :, 0].tolist() == [1, 3]


def test_rows_are_gathered_in_the_shape_of_the_index() -> None:
    x = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert npu_gather_sparse_index(x, torch.tensor([1, 0])).tolist() == [[4, 5, 6], [1, 2, 3]]
    assert npu_gather_sparse_index(x, torch.tensor([[2], [0]])).shape == (2, 1, 3)


# the examples of torch_npu's documentation
def test_signs_are_packed_and_unpacked_as_in_the_documentation() -> None:
    x = torch.tensor([5, 4, 3, 2, 0, -1, -2, 4, 3, 2, 1, 0, -1, -2], dtype=torch.float32)
    assert npu_sign_bits_pack(x, 2).tolist() == [[159], [15]]
    assert npu_sign_bits_pack(x, 1).tolist() == [[159, 15]]
    packed = torch.tensor([159, 15], dtype=torch.uint8)
    signs = [[1.0, 1, 1, 1, 1, -1, -1, 1], [1.0, 1, 1, 1, -1, -1, -1, -1]]
    assert npu_sign_bits_unpack(packed, 2, torch.float32).tolist() == signs
    assert npu_sign_bits_unpack(packed, 1, torch.float16).tolist() == [[*signs[0], *signs[1]]]


def test_slices_have_bounds_strides_and_dimensions_that_go() -> None:
    x = draw(4, 5, 6)
    assert npu_indexing(x, [0, 1, 2], [2, 4, 6], [1, 2, 3]).equal(x[0:2, 1:4:2, 2:6:3])
    assert npu_indexing(x, [1, 1], [2, 2], [1, 1], begin_mask=1, end_mask=2).equal(x[:2, 1:])
    assert npu_indexing(x, [1, 3], [9, 9], [1, 1], shrink_axis_mask=2).equal(x[1:, 3])
    with pytest.raises(NotImplementedError, match="ellipsis_mask"):
        npu_indexing(x, [0], [1], [1], ellipsis_mask=1)


def test_a_cast_in_place_keeps_the_dtype() -> None:
    x = torch.zeros(2, dtype=torch.float16)
    assert npu_dtype_cast_(x, torch.tensor([1.5, -2.0])) is x
    assert x.tolist() == [1.5, -2.0]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_transposed_convolution_is_the_gradient_of_a_convolution(dims: int) -> None:
    convolve = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    x = draw(2, 4, *[7] * dims).requires_grad_()
    weight = draw(6, 2, *[3] * dims, seed=1)
    y = convolve(x, weight, None, 2, 1, 1, 2)
    grad = draw(*y.shape, seed=2)
    (expected,) = torch.autograd.grad(y, x, grad)
    each = [[number] * dims for number in (1, 0, 2, 1)]
    close(npu_convolution_transpose(grad, weight, None, *each, 2), expected)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_the_first_half_is_multiplied(approximate: str) -> None:
    x = draw(3, 8)
    inner = math.sqrt(2 / math.pi)
    gelu = {
        "none": lambda a: 0.5 * a * (1 + math.erf(a / math.sqrt(2))),
        "tanh": lambda a: 0.5 * a * (1 + math.tanh(inner * (a + 0.044715 * a**3))),
    }[approximate]
    close(
        npu_gelu_mul(x, approximate=approximate), [[gelu(float(r[i])) * float(r[i + 4]) for i in range(4)] for r in x]
    )
    assert torch.autograd.gradcheck(lambda x: npu_gelu_mul(x, approximate=approximate), (x.requires_grad_(),))


@pytest.mark.parametrize("interleaved", [False, True])
def test_clipped_swiglu_takes_its_halves_or_its_even_and_odd_elements(interleaved: bool) -> None:
    x = draw(3, 8) * 4
    expected = np.empty((3, 4))
    for r, i in np.ndindex(3, 4):
        a, b = (x[r, 2 * i], x[r, 2 * i + 1]) if interleaved else (x[r, i], x[r, i + 4])
        a, b = min(float(a), 2.0), max(min(float(b), 2.0), -2.0)
        expected[r, i] = a / (1 + math.exp(-1.5 * a)) * (b + 0.5)
    options = {"alpha": 1.5, "limit": 2.0, "bias": 0.5, "interleaved": interleaved}
    close(npu_clipped_swiglu(x, **options), expected)  # type: ignore[arg-type]
    swapped = npu_clipped_swiglu(x.T.contiguous(), dim=0, **{**options, "interleaved": False})  # type: ignore[arg-type]
    if not interleaved:
        close(swapped, expected.T)
    with pytest.raises(NotImplementedError, match="group_index"):
        npu_clipped_swiglu(x, group_index=torch.tensor([2]))


def test_group_norm_with_swish_normalizes_each_group() -> None:
    x, weight, bias = draw(2, 4, 3), draw(4, seed=1), draw(4, seed=2)
    y, mean, rstd = npu_group_norm_swish(x, 2, weight, bias, 1e-3, 0.7)
    expected = np.empty(x.shape)
    for b, g in np.ndindex(2, 2):
        values = x[b, 2 * g : 2 * g + 2].numpy()
        centre, spread = values.mean(), 1 / np.sqrt(values.var() + 1e-3)
        assert float(mean[b, g]) == pytest.approx(centre, rel=1e-12)
        assert float(rstd[b, g]) == pytest.approx(spread, rel=1e-12)
        for c in (2 * g, 2 * g + 1):
            normal = (x[b, c].numpy() - centre) * spread * float(weight[c]) + float(bias[c])
            expected[b, c] = normal / (1 + np.exp(-0.7 * normal))
    close(y, expected)
    inputs = tuple(each.requires_grad_() for each in (x, weight, bias))
    assert torch.autograd.gradcheck(lambda *t: npu_group_norm_swish(t[0], 2, *t[1:])[0], inputs)
