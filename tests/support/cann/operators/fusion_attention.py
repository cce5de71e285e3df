"""Fused attention, one head of one sequence after the other in float64; gradients by autograd through it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

_UNLIMITED = 2147483647
#: The arguments of a gradient that its forward has too, and that change what the forward computes.
_SHARED = frozenset(
    """
    padding_mask atten_mask keep_prob pre_tockens next_tockens prefix actual_seq_qlen actual_seq_kvlen sparse_mode
    """.split()
)
_COPIES = 8
#: Where batch, sequence and heads are in each layout whose heads are a dimension.
_AXES = {"BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3)}


@by_schema
def npu_fusion_attention(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    if args.keep_prob < 1 or args.padding_mask is not None or args.dropout_mask is not None:
        raise NotImplementedError("npu_fusion_attention with dropout or padding_mask")
    mask = (
        None
        if args.atten_mask is None
        else (args.atten_mask != 0, args.sparse_mode, args.pre_tockens, args.next_tockens, args.prefix)
    )
    wide = [tensor.double() for tensor in (args.query, args.key, args.value)]
    if args.input_layout == "TND":
        out, largest, total, count = _packed(
            wide, mask, args.scale, args.actual_seq_qlen or [], args.actual_seq_kvlen or [], args.sink
        )
    else:
        out, largest, total, count = _batched(
            wide, mask, args.scale, args.head_num, args.input_layout, args.pse, args.sink
        )
    statistics = [each.detach().float().unsqueeze(-1).repeat_interleave(_COPIES, -1) for each in (largest, total)]
    return out.to(args.query.dtype), statistics[0], statistics[1], args.query.new_empty(0), 0, 0, count


@by_schema
def npu_fusion_attention_grad(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    shared = {name: value for name, value in vars(args).items() if name in _SHARED}
    given = [args.query, args.key, args.value, args.pse, args.sink]
    leaves = [None if each is None else each.detach().double().requires_grad_() for each in given]
    with torch.enable_grad():
        q, k, v, bias, extra = leaves
        assert q is not None
        assert k is not None
        assert v is not None
        forward = npu_fusion_attention(
            q, k, v, args.head_num, args.input_layout, pse=bias, scale=args.scale_value, sink=extra, **shared
        )
        wanted = [leaf for leaf in leaves if leaf is not None]
        found = iter(torch.autograd.grad(forward[0], wanted, args.dy.double(), allow_unused=True))
    gradients = [None if each is None else next(found) for each in leaves]
    rounded = [
        gradient if gradient is None or each is None else gradient.to(each.dtype)
        for gradient, each in zip(gradients, given, strict=True)
    ]
    assert rounded[0] is not None
    assert rounded[1] is not None
    assert rounded[2] is not None
    return rounded[0], rounded[1], rounded[2], rounded[3], rounded[4]


Mask = tuple[Tensor, int, int, int, list[int] | None]
Result = tuple[Tensor, Tensor, Tensor, int]


def _batched(
    wide: list[Tensor],
    mask: Mask | None,
    scale: float,
    head_num: int,
    layout: str,
    pse: Tensor | None,
    sink: Tensor | None,
) -> Result:
    query, key, value = (_heads(tensor, layout) for tensor in wide)
    if layout in ("BSH", "SBH"):
        depth = query.shape[-1] // head_num
        query, key = (_split(tensor, depth) for tensor in (query, key))
        value = _split(value, value.shape[-1] // key.shape[1])
    batch, heads, rows = query.shape[:3]
    columns = key.shape[2]
    out, statistics = [], []
    for b in range(batch):
        for n in range(heads):
            shared = n * key.shape[1] // heads
            hidden = None if mask is None else _hidden(mask, mask[1], rows, columns, b, n)
            bias = None if pse is None else pse.double().expand(batch, heads, rows, columns)[b, n]
            part, *numbers = _head(
                query[b, n], key[b, shared], value[b, shared], bias, hidden, scale, None if sink is None else sink[n]
            )
            out.append(part)
            statistics.append(torch.stack(numbers))
    result = torch.stack(out).reshape(batch, heads, rows, -1)
    joined = torch.stack(statistics).reshape(batch, heads, 2, rows)
    return _back(result, layout), joined[:, :, 0], joined[:, :, 1], batch * heads * rows * columns


def _packed(
    wide: list[Tensor], mask: Mask | None, scale: float, ends: list[int], key_ends: list[int], sink: Tensor | None
) -> Result:
    query, key, value = wide
    heads = query.shape[1]
    out = query.new_zeros(query.shape[0], heads, value.shape[2])
    pieces: list[Tensor] = [out]
    numbers: list[Tensor] = []
    count = 0
    spans = list(zip(_spans(ends), _spans(key_ends), strict=True))
    for index, (rows, columns) in enumerate(spans):
        parts, statistics = [], []
        for n in range(heads):
            shared = n * key.shape[1] // heads
            hidden = None
            if mask is not None:
                mode = _mode_of_sequence(mask[1], index, len(spans) - 1)
                hidden = _hidden(mask, mode, rows.stop - rows.start, columns.stop - columns.start, index, 0)
            part, largest, total = _head(
                query[rows, n],
                key[columns, shared],
                value[columns, shared],
                None,
                hidden,
                scale,
                None if sink is None else sink[n],
            )
            parts.append(part)
            statistics.append(torch.stack((largest, total)))
            count += (rows.stop - rows.start) * (columns.stop - columns.start)
        pieces.append(torch.stack(parts, 1))
        numbers.append(torch.stack(statistics).reshape(heads, 2, -1).permute(1, 0, 2).reshape(2, -1))
    joined = torch.cat(numbers, 1).reshape(2, -1, heads)
    return torch.cat(pieces[1:]), joined[0], joined[1], count


def _head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    hidden: Tensor | None,
    scale: float,
    sink: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one head's output (S, D), and the maximum and the sum of exponentials of each row (S)."""
    products = query @ key.T
    scores = (products if bias is None else products + bias) * scale
    if hidden is not None:
        scores = torch.where(hidden, -torch.inf, scores)
    if sink is not None:
        scores = torch.cat((scores, sink.double().expand(len(scores), 1)), 1)
    largest = scores.detach().amax(1)
    weights = torch.exp(scores - torch.where(largest.isinf(), 0.0, largest)[:, None])
    total = weights.sum(1)
    normed = weights / torch.where(total == 0, 1.0, total)[:, None]
    return normed[:, : len(key)] @ value, largest, total


def _hidden(mask: Mask, mode: int, rows: int, columns: int, batch: int, head: int) -> Tensor:
    """Return what a head's rows do not see of its columns, by the sparse mode that torch_npu documents."""
    given, _, before, after, prefix = mask
    plain = given.reshape(*(1,) * (4 - given.dim()), *given.shape)
    plain = plain[min(batch, plain.shape[0] - 1), min(head, plain.shape[1] - 1)]
    is_whole = plain.shape == (rows, columns)
    distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
    end = columns - rows
    if mode in (0, 1, 5):
        band = (distance < -before) | (distance > after)
        return plain | band if mode == 0 else plain
    if is_whole and mode != 6:
        return plain
    if mode == 2:
        return distance > 0
    if mode == 3:
        return distance > end
    if mode == 4:
        return (distance < end - before) | (distance > end + after)
    assert prefix is not None
    return (distance > end) & (torch.arange(columns)[None, :] >= prefix[batch])


def _mode_of_sequence(mode: int, index: int, last: int) -> int:
    if mode == 7:
        return 4 if index == last else 3
    if mode == 8:
        return 4 if index == 0 else 2
    return mode


def _spans(ends: list[int]) -> Iterator[slice]:
    start = 0
    for end in ends:
        if end > start:
            yield slice(start, end)
            start = end


def _heads(tensor: Tensor, layout: str) -> Tensor:
    if layout in _AXES:
        return tensor.permute(_AXES[layout])
    return tensor.transpose(0, 1) if layout == "SBH" else tensor


def _split(tensor: Tensor, depth: int) -> Tensor:
    return tensor.unflatten(-1, (-1, depth)).transpose(1, 2)


def _back(result: Tensor, layout: str) -> Tensor:
    if layout in _AXES:
        return result.permute(_AXES[layout])
    joined = result.transpose(1, 2).flatten(2)
    return joined.transpose(0, 1) if layout == "SBH" else joined
