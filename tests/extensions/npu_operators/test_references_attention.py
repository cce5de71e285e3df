"""Fused attention against loops in numpy, torch's own attention and its autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.attention.attention import npu_fusion_attention, npu_fusion_attention_grad
from pytest_msprobe.extensions.npu_operators.attention.attention_variants import npu_fusion_attention_v2
from tests.support.npu.attention_layouts import in_layout

TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
FAR = 2147483647


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: object) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-11, atol=1e-12)


def by_hand(q: Tensor, k: Tensor, v: Tensor, hidden: np.ndarray, scale: float) -> tuple[np.ndarray, ...]:
    """Output, row maxima and row sums of (B, N, S, D) tensors, one query at a time."""
    b, n, sq, _ = q.shape
    skv, groups = k.shape[2], n // k.shape[1]
    hidden = np.broadcast_to(hidden, (b, n, sq, skv))
    out, maximum, total = np.zeros((b, n, sq, v.shape[3])), np.full((b, n, sq), -np.inf), np.zeros((b, n, sq))
    for i, j, row in np.ndindex(b, n, sq):
        seen = np.flatnonzero(~hidden[i, j, row])
        if len(seen):
            scores = k.numpy()[i, j // groups, seen] @ q.numpy()[i, j, row] * scale
            maximum[i, j, row] = scores.max()
            weights = np.exp(scores - scores.max())
            total[i, j, row] = weights.sum()
            out[i, j, row] = weights @ v.numpy()[i, j // groups, seen] / weights.sum()
    return out, maximum, total


@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
def test_every_layout_gives_output_maximum_and_sum(layout: str) -> None:
    q, k, v = draw(2, 4, 3, 6), draw(2, 2, 5, 6, seed=1), draw(2, 2, 5, 4, seed=2)
    expected, maximum, total = by_hand(q, k, v, np.zeros((3, 5), bool), 0.4)
    out, softmax_max, softmax_sum, empty, seed, offset, count = npu_fusion_attention(
        in_layout(q, layout), in_layout(k, layout), in_layout(v, layout), 4, layout, scale=0.4
    )
    close(out, in_layout(torch.from_numpy(expected), layout))
    close(softmax_max, np.repeat(maximum[..., None], 8, -1))
    close(softmax_sum, np.repeat(total[..., None], 8, -1))
    assert (empty.numel(), seed, offset, count) == (0, 0, 0, 2 * 4 * 3 * 5)


def test_without_further_arguments_nothing_is_scaled_or_hidden() -> None:
    q, k, v = draw(1, 2, 4, 3), draw(1, 2, 4, 3, seed=1), draw(1, 2, 4, 3, seed=2)
    close(npu_fusion_attention(q, k, v, 2, "BNSD")[0], F.scaled_dot_product_attention(q, k, v, scale=1.0))


def test_without_a_mask_the_sparse_mode_hides_nothing() -> None:
    q, k, v = draw(1, 2, 4, 3), draw(1, 2, 4, 3, seed=1), draw(1, 2, 4, 3, seed=2)
    out = npu_fusion_attention(q, k, v, 2, "BNSD", sparse_mode=3, pre_tockens=0, next_tockens=0)[0]
    close(out, F.scaled_dot_product_attention(q, k, v, scale=1.0))


def allowed(rows: int, columns: int, visible: Any) -> np.ndarray:
    """Return what is hidden where ``visible(row, column)`` says what is not."""
    return np.array([[not visible(r, c) for c in range(columns)] for r in range(rows)])


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (6, 4), (5, 5)])
@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5, 6])
def test_sparse_modes_hide_what_the_documentation_draws(mode: int, rows: int, columns: int) -> None:
    q, k, v = draw(2, 2, rows, 3), draw(2, 2, columns, 3, seed=1), draw(2, 2, columns, 3, seed=2)
    end = columns - rows
    given = draw(2, 1, rows, columns, seed=3) > 0.7
    hidden = {
        1: given.numpy(),
        5: given.numpy(),
        2: allowed(rows, columns, lambda r, c: c <= r),
        3: allowed(rows, columns, lambda r, c: c <= r + end),
        4: allowed(rows, columns, lambda r, c: r + end - 2 <= c <= r + end + 1),
        6: np.stack([allowed(rows, columns, lambda r, c, n=n: c <= r + end or c < n)[None] for n in (3, 1)]),
    }[mode]
    expected, maximum, _ = by_hand(q, k, v, hidden, 0.5)
    atten_mask = given if mode in (1, 5) else TRIANGLE
    out = npu_fusion_attention(
        q, k, v, 2, "BNSD",
        atten_mask=atten_mask, scale=0.5, sparse_mode=mode, pre_tockens=2, next_tockens=1, prefix=[3, 1],
    )  # fmt: skip
    close(out[0], expected)
    close(out[1][..., 0], maximum)


def test_mode_0_hides_by_mask_and_by_band() -> None:
    q, k, v = draw(1, 2, 5, 3), draw(1, 2, 5, 3, seed=1), draw(1, 2, 5, 3, seed=2)
    mask = draw(5, 5, seed=3) > 1
    hidden = mask.numpy() | allowed(5, 5, lambda r, c: r - 3 <= c <= r + 1)
    out = npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=mask.byte(), pre_tockens=3, next_tockens=1)[0]
    close(out, by_hand(q, k, v, hidden, 1.0)[0])


def test_a_mask_of_the_scores_shape_counts_in_a_compressed_mode_too() -> None:
    q, k, v = draw(1, 2, 4, 3), draw(1, 2, 4, 3, seed=1), draw(1, 2, 4, 3, seed=2)
    mask = torch.eye(4, dtype=torch.bool)
    out = npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=mask, sparse_mode=2)[0]
    close(out, by_hand(q, k, v, mask.numpy(), 1.0)[0])


def test_a_row_with_everything_hidden_is_zero_and_has_no_gradient() -> None:
    q, k, v = (draw(1, 1, 3, 2, seed=i).requires_grad_() for i in range(3))
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[1] = True
    out, maximum, total, *_ = npu_fusion_attention(q, k, v, 1, "BNSD", atten_mask=mask, sparse_mode=1)
    assert out[0, 0, 1].eq(0).all()
    assert maximum[0, 0, 1].eq(-torch.inf).all()
    assert total[0, 0, 1].eq(0).all()
    out.sum().backward()
    assert q.grad is not None
    assert k.grad is not None
    assert q.grad[0, 0, 1].eq(0).all()
    assert torch.isfinite(q.grad).all()
    assert torch.isfinite(k.grad).all()


@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (2, 4, 1, 5), (1, 4, 3, 5)])
def test_pse_is_added_before_scaling(shape: tuple[int, ...]) -> None:
    q, k, v, pse = draw(2, 4, 3, 6), draw(2, 4, 5, 6, seed=1), draw(2, 4, 5, 6, seed=2), draw(*shape, seed=3)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=pse.expand(2, 4, 3, 5) * 0.3, scale=0.3)
    close(npu_fusion_attention(q, k, v, 4, "BNSD", pse=pse, scale=0.3)[0], expected)


def packed_case(q_lengths: list[int], kv_lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    return draw(sum(q_lengths), 4, 3), draw(sum(kv_lengths), 2, 3, seed=1), draw(sum(kv_lengths), 2, 3, seed=2)


@pytest.mark.parametrize(
    ("mode", "band", "q_lengths", "kv_lengths", "hidden"),
    [
        # the two examples of the documentation: a causal mask whose queries were cut between two cards
        (7, (6, -2), [3, 2], [3, 6], [lambda r, c: c <= r, lambda r, c: c <= r + 2]),
        (8, (4, 1), [3, 5, 4], [4, 5, 4], [lambda r, c: c <= r + 2, lambda r, c: c <= r, lambda r, c: c <= r]),
        (7, (9, -1), [2], [6], [lambda r, c: c <= r + 3]),
        (2, (FAR, FAR), [2, 4], [3, 2], [lambda r, c: c <= r, lambda r, c: c <= r]),
        (3, (FAR, FAR), [2, 4], [3, 2], [lambda r, c: c <= r + 1, lambda r, c: c <= r - 2]),
        (0, (FAR, FAR), [2, 0, 3], [4, 2, 1], [lambda r, c: True] * 3),
    ],
)
def test_packed_sequences_attend_each_to_itself(
    mode: int, band: tuple[int, int], q_lengths: list[int], kv_lengths: list[int], hidden: list[Any]
) -> None:
    q, k, v = packed_case(q_lengths, kv_lengths)
    mask = torch.zeros(8, 8, dtype=torch.bool) if mode == 0 else TRIANGLE
    out, maximum, total, *_, count = npu_fusion_attention(
        q, k, v, 4, "TND",
        atten_mask=mask, sparse_mode=mode, pre_tockens=band[0], next_tockens=band[1],
        actual_seq_qlen=np.cumsum(q_lengths).tolist(), actual_seq_kvlen=np.cumsum(kv_lengths).tolist(),
    )  # fmt: skip
    assert maximum.shape == total.shape == (sum(q_lengths), 4, 8)
    assert count == 4 * sum(a * b for a, b in zip(q_lengths, kv_lengths, strict=True))
    parts = zip(
        out.split(q_lengths), maximum.split(q_lengths), q.split(q_lengths), k.split(kv_lengths), v.split(kv_lengths),
        hidden, strict=True,
    )  # fmt: skip
    # of each sequence the rows of one head after the other
    for part, part_max, q_part, k_part, v_part, visible in parts:
        shape = (q_part.shape[0], k_part.shape[0])
        one = [t.transpose(0, 1)[None] for t in (q_part, k_part, v_part)]
        expected, row_max, _ = by_hand(one[0], one[1], one[2], allowed(*shape, visible).reshape(shape), 1.0)
        close(part, expected[0].transpose(1, 0, 2))
        close(part_max[..., 0].reshape(4, -1), row_max[0])


def test_statistics_of_packed_sequences_follow_the_tokens_where_that_is_asked_for() -> None:
    q, k, v = packed_case([2, 3], [3, 3])
    lengths: dict[str, Any] = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [3, 6]}
    _, maximum, total, *_ = npu_fusion_attention(q, k, v, 4, "TND", softmax_layout="TND", **lengths)
    for rows, columns in ((slice(0, 2), slice(0, 3)), (slice(2, 5), slice(3, 6))):
        one = [t.transpose(0, 1)[None] for t in (q[rows], k[columns], v[columns])]
        _, row_max, row_sum = by_hand(one[0], one[1], one[2], np.zeros((1, 1), bool), 1.0)
        close(maximum[rows, :, 0], row_max[0].T)
        close(total[rows, :, 0], row_sum[0].T)


def test_a_sink_is_one_more_key_without_a_value() -> None:
    q, k, v, sink = draw(2, 4, 3, 6), draw(2, 2, 5, 6, seed=1), draw(2, 2, 5, 6, seed=2), draw(4, seed=3)
    out, maximum, total, *_ = npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.4, sink=sink)
    for b, n, row in np.ndindex(2, 4, 3):
        scores = [0.4 * float(q[b, n, row] @ k[b, n // 2, column]) for column in range(5)]
        highest = max(*scores, float(sink[n]))
        weights = np.exp(np.array(scores) - highest)
        below = weights.sum() + np.exp(float(sink[n]) - highest)
        close(out[b, n, row], weights @ v[b, n // 2].numpy() / below)
        close(maximum[b, n, row], [highest] * 8)
        close(total[b, n, row], [below] * 8)
    inputs = [t[:1].clone().requires_grad_() for t in (q, k, v)] + [sink.requires_grad_()]
    assert torch.autograd.gradcheck(
        lambda q, k, v, s: npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.4, sink=s)[0], inputs
    )


def test_the_gradient_of_a_sink_is_that_of_the_forward() -> None:
    q, k, v, sink = (draw(1, 2, 3, 4, seed=seed).requires_grad_() for seed in range(4))
    sink = sink[0, :, 0, 0].detach().requires_grad_()
    dy = draw(1, 2, 3, 4, seed=5)
    out = npu_fusion_attention(q, k, v, 2, "BNSD", sink=sink)[0]
    expected = torch.autograd.grad(out, (q, k, v, sink), dy)
    *actual, pse, last = npu_fusion_attention_grad(q, k, v, dy, 2, "BNSD", sink=sink)
    assert pse is None
    assert last is not None
    for got, want in zip((*actual, last), expected, strict=True):
        close(got, want)


def test_rotated_parts_add_their_product_to_the_scores() -> None:
    q, k, v = packed_case([2, 3], [3, 3])
    turned_q, turned_k = draw(5, 4, 2, seed=7), draw(6, 2, 2, seed=8)
    lengths: dict[str, Any] = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [3, 6], "scale": 0.4}
    out = npu_fusion_attention_v2(q, k, v, 4, "TND", query_rope=turned_q, key_rope=turned_k, **lengths)[0]
    for rows, columns in ((slice(0, 2), slice(0, 3)), (slice(2, 5), slice(3, 6))):
        for head in range(4):
            scores = q[rows, head] @ k[columns, head // 2].T + turned_q[rows, head] @ turned_k[columns, head // 2].T
            close(out[rows, head], torch.softmax(0.4 * scores, -1) @ v[columns, head // 2])


def test_one_rotated_part_without_the_other_is_refused() -> None:
    q = draw(1, 2, 4, 3)
    with pytest.raises(ValueError, match="query_rope and key_rope together"):
        npu_fusion_attention_v2(q, q, q, 2, "BNSD", query_rope=q)


def test_packed_sequences_that_take_no_part_give_zero_rows() -> None:
    q, k, v = packed_case([2, 3, 4], [2, 3, 4])
    lengths = [2, 5, 0]
    out, _, total, *_ = npu_fusion_attention(q, k, v, 4, "TND", actual_seq_qlen=lengths, actual_seq_kvlen=lengths)
    assert out.shape == q.shape
    assert out[5:].eq(0).all()
    assert total[5:].eq(0).all()
    assert out[:5].ne(0).all()


def test_dropout_keeps_the_expected_output() -> None:
    q, k, v = draw(1, 1, 1, 2).expand(4000, 1, 1, 2), draw(4000, 1, 5, 2, seed=1), draw(4000, 1, 5, 2, seed=2)
    k, v = k[:1].expand_as(k), v[:1].expand_as(v)
    torch.manual_seed(0)
    dropped = npu_fusion_attention(q, k, v, 1, "BNSD", keep_prob=0.6)[0]
    kept = npu_fusion_attention(q, k, v, 1, "BNSD")[0]
    spread = dropped.std(0) / 4000**0.5
    assert ((dropped.mean(0) - kept[0]).abs() < 6 * spread).all()
    assert (dropped - kept).abs().max() > 0.01


@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
def test_the_gradient_is_that_of_torchs_attention(layout: str) -> None:
    q, k, v = (t.requires_grad_() for t in (draw(2, 4, 3, 6), draw(2, 2, 5, 6, seed=1), draw(2, 2, 5, 6, seed=2)))
    pse, dy, mask = draw(1, 4, 3, 5, seed=3).requires_grad_(), draw(2, 4, 3, 6, seed=4), draw(3, 5, seed=5) > 0.5
    bias = (pse * 0.4).masked_fill(mask, -torch.inf).expand(2, 4, 3, 5)
    out = F.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), attn_mask=bias, scale=0.4
    )
    expected = torch.autograd.grad(out, (q, k, v, pse), dy)
    arguments = [in_layout(t.detach(), layout) for t in (q, k, v, dy)]
    actual = npu_fusion_attention_grad(
        *arguments, 4, layout, pse=pse.detach(), atten_mask=mask, scale_value=0.4, sparse_mode=1
    )
    for got, want in zip(actual[:3], expected[:3], strict=True):
        close(got, in_layout(want, layout))
    assert actual[3] is not None
    close(actual[3], expected[3])


def test_the_gradient_of_packed_sequences_is_that_of_the_forward() -> None:
    q, k, v = packed_case([2, 3], [3, 3])
    options: dict[str, Any] = {
        "atten_mask": TRIANGLE, "sparse_mode": 3, "actual_seq_qlen": [2, 5], "actual_seq_kvlen": [3, 6],
    }  # fmt: skip
    inputs = [t.requires_grad_() for t in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *t: npu_fusion_attention(*t, 4, "TND", **options)[0], inputs)
    dy = draw(5, 4, 3, seed=9)
    expected = torch.autograd.grad(npu_fusion_attention(q, k, v, 4, "TND", **options)[0], inputs, dy)
    actual = npu_fusion_attention_grad(q.detach(), k.detach(), v.detach(), dy, 4, "TND", **options)
    assert actual[3] is None
    for got, want in zip(actual[:3], expected, strict=True):
        close(got, want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_layout": "BNDS"}, "'BNDS' of npu_fusion_attention is not one of BSH, SBH, BSND, BNSD, TND"),
        ({"input_layout": "TND"}, "needs actual_seq_qlen and actual_seq_kvlen"),
        ({"sparse_mode": 7}, "sparse_mode 7 .* those without input_layout TND"),
        ({"sparse_mode": 6, "atten_mask": TRIANGLE}, "sparse_mode 6 .* needs prefix"),
    ],
)
def test_arguments_that_contradict_each_other_are_named(options: dict[str, Any], message: str) -> None:
    q = draw(1, 2, 4, 3)
    with pytest.raises(ValueError, match=message):
        npu_fusion_attention(q, q, q, 2, **{"input_layout": "BNSD", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_mask": TRIANGLE}, "no golden definition with padding_mask"),
        ({"softmax_layout": "NTD"}, "no golden definition with softmax_layout"),
        ({"pse": torch.zeros(1, 2, 3, 4)}, "pse .* has 3 rows for 4 queries"),
        ({"pse": torch.zeros(1, 2, 4, 4), "input_layout": "TND"}, "TND has no golden definition with pse"),
    ],
)
def test_what_has_no_golden_definition_is_named(options: dict[str, Any], message: str) -> None:
    q = draw(1, 2, 4, 3)
    with pytest.raises(NotImplementedError, match=message):
        npu_fusion_attention(q, q, q, 2, **{"input_layout": "BNSD", **options})
