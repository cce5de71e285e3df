"""Elements that are moved, picked, ordered and packed, one by one."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_transpose(args: Arguments) -> Tensor:
    result = torch.zeros([args.self.shape[dim] for dim in args.perm], dtype=args.self.dtype)
    for place in product(*map(range, args.self.shape)):
        result[tuple(place[dim] for dim in args.perm)] = args.self[place]
    return result


@by_schema
def npu_reshape(args: Arguments) -> Tensor:
    elements = torch.stack([args.self[place] for place in product(*map(range, args.self.shape))])
    return elements.view(list(args.shape))


@by_schema
def npu_broadcast(args: Arguments) -> Tensor:
    result = torch.zeros(list(args.size), dtype=args.self.dtype)
    for place in product(*map(range, args.size)):
        seen = place[len(args.size) - args.self.dim() :]
        result[place] = args.self[
            tuple(0 if length == 1 else at for at, length in zip(seen, args.self.shape, strict=True))
        ]
    return result


@by_schema
def npu_slice(args: Arguments) -> Tensor:
    result = torch.zeros(list(args.size), dtype=args.self.dtype)
    for place in product(*map(range, args.size)):
        result[place] = args.self[tuple(at + first for at, first in zip(place, args.offsets, strict=True))]
    return result


@by_schema
def npu_indexing(args: Arguments) -> Tensor:
    result, gone = args.self, 0
    for dim, (first, last, step) in enumerate(zip(args.begin, args.end, args.strides, strict=True)):
        length = args.self.shape[dim]
        if args.shrink_axis_mask >> dim & 1:
            result, gone = result.select(dim - gone, first), gone + 1
            continue
        low = 0 if args.begin_mask >> dim & 1 else first % length if first < 0 else first
        high = length if args.end_mask >> dim & 1 else last % length if last < 0 else min(last, length)
        result = result.index_select(dim - gone, torch.arange(low, high, step))
    return result.contiguous()


@by_schema
def npu_one_hot(args: Arguments) -> Tensor:
    out = torch.full((*args.self.shape, args.depth), float(args.off_value))
    for place in product(*map(range, args.self.shape)):
        if 0 <= int(args.self[place]) < args.depth:
            out[(*place, int(args.self[place]))] = float(args.on_value)
    return out.movedim(-1, args.num_classes)


@by_schema
def npu_sort_v2(args: Arguments) -> Tensor:
    lines = [
        sorted(line.tolist(), reverse=args.descending)
        for line in args.self.movedim(args.dim, -1).reshape(-1, args.self.shape[args.dim])
    ]
    values = (
        torch.tensor(lines).to(args.self.dtype).reshape(args.self.movedim(args.dim, -1).shape).movedim(-1, args.dim)
    )
    return values.contiguous()


@by_schema
def npu_max(args: Arguments) -> tuple[Tensor, Tensor]:
    return _extremum(args.self, args.dim, args.keepdim, sign=1)


@by_schema
def npu_min(args: Arguments) -> tuple[Tensor, Tensor]:
    return _extremum(args.self, args.dim, args.keepdim, sign=-1)


def _extremum(x: Tensor, dim: int, keepdim: bool, sign: int) -> tuple[Tensor, Tensor]:
    lines = x.movedim(dim, -1)
    places = [max(range(len(line)), key=lambda at: sign * float(line[at])) for line in lines.reshape(-1, x.shape[dim])]
    indices = torch.tensor(places).reshape(lines.shape[:-1])
    values = torch.tensor([line[at] for line, at in zip(lines.reshape(-1, x.shape[dim]).tolist(), places, strict=True)])
    values = values.to(x.dtype).reshape(indices.shape)
    if keepdim:
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    return values, indices.int()


@by_schema
def npu_sign_bits_pack(args: Arguments) -> Tensor:
    numbers = args.self.tolist()
    numbers += [-1.0] * (-len(numbers) % 8)
    packed = [
        sum((number >= 0) << bit for bit, number in enumerate(numbers[at : at + 8])) for at in range(0, len(numbers), 8)
    ]
    return torch.tensor(packed, dtype=torch.uint8).reshape(args.size, -1)


@by_schema
def npu_sign_bits_unpack(args: Arguments) -> Tensor:
    signs = [1 if number >> bit & 1 else -1 for number in args.input.flatten().tolist() for bit in range(8)]
    return torch.tensor(signs).reshape(args.size, -1).to(args.dtype)
