"""Parts of tensors that are filled, padded, picked, placed and added, element by element."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_masked_fill_range(args: Arguments) -> Tensor:
    out, along = args.self.clone(), args.axis % args.self.dim()
    by_row = along == args.self.dim() - 1 > 0
    for i, j in product(range(args.start.shape[0]), range(args.start.shape[1])):
        for place in product(*map(range, args.self.shape)):
            is_about = not by_row or place[0] == j
            if is_about and int(args.start[i, j]) <= place[along] < int(args.end[i, j]):
                out[place] = args.value[i]
    return out


@by_schema
def npu_pad(args: Arguments) -> Tensor:
    widths = [*args.paddings, *[0] * (2 * args.input.dim() - len(args.paddings))]
    sizes = [widths[2 * i] + size + widths[2 * i + 1] for i, size in enumerate(args.input.shape)]
    out = torch.zeros(sizes, dtype=args.input.dtype)
    for place in product(*map(range, args.input.shape)):
        out[tuple(at + widths[2 * i] for i, at in enumerate(place))] = args.input[place]
    return out


def _put(out: Tensor, indices: Tensor, values: Tensor, dim: int) -> Tensor:
    for place in product(*map(range, indices.shape)):
        target = list(place)
        if indices.dim() < out.dim():
            target.insert(dim % out.dim(), int(indices[place]))
        else:
            target[dim] = int(indices[place])
        out[tuple(target)] = values[place]
    return out


@by_schema
def npu_scatter(args: Arguments) -> Tensor:
    return _put(args.self.clone(), args.indices, args.updates, args.dim)


@by_schema
def npu_max_backward(args: Arguments) -> Tensor:
    return _put(torch.zeros(list(args.sizes), dtype=args.grad.dtype), args.indices, args.grad, args.dim)


@by_schema
def npu_min_backward(args: Arguments) -> Tensor:
    return npu_max_backward(args.grad, args.dim, args.indices, args.sizes, args.keepdim)


@by_schema
def npu_scatter_list_(args: Arguments) -> None:
    for i, target in enumerate(args.self):
        for place in product(*map(range, args.updates[i].shape)):
            shifted = list(place)
            shifted[args.axis] += int(args.indices[i])
            if args.mask is None or int(args.mask[i]):
                target[tuple(shifted)] = args.updates[i][place]


@by_schema
def npu_scatter_list(args: Arguments) -> list[Tensor]:
    copies = [each.clone() for each in args.self]
    npu_scatter_list_(copies, args.indices, args.updates, args.mask, args.reduce, args.axis)
    return copies


@by_schema
def npu_stride_add(args: Arguments) -> Tensor:
    channels = int(args.c1_len) * 16
    out = torch.zeros(args.self.shape[0], channels, *args.self.shape[2:], dtype=args.self.dtype)
    for channel in range(channels):
        for x, offset in ((args.self, int(args.offset1)), (args.other, int(args.offset2))):
            if channel + 16 * offset < x.shape[1]:
                out[:, channel] += x[:, channel + 16 * offset]
    return out


@by_schema
def npu_stride_copy(args: Arguments) -> Tensor:
    memory = args.self.contiguous().flatten()
    result = torch.zeros(list(args.shape), dtype=args.self.dtype)
    for place in product(*map(range, args.shape)):
        result[place] = memory[
            int(args.storage_offset) + sum(at * step for at, step in zip(place, args.stride, strict=True))
        ]
    return result


@by_schema
def npu_view_copy(args: Arguments) -> Tensor:
    for place in product(*map(range, args.self.shape)):
        args.self[place] = args.other[place]
    return args.self


@by_schema
def _npu_index_add_(args: Arguments) -> Tensor:
    total = args.self.double()
    for place in product(*map(range, args.index.shape)):
        total[int(args.index[place])] += args.alpha * args.source[place].double()
    return args.self.copy_(total)


@by_schema
def _npu_index_add(args: Arguments) -> Tensor:
    return _npu_index_add_(args.self.clone(), args.index, args.source, alpha=args.alpha)


@by_schema
def npu_gather_sparse_index(args: Arguments) -> Tensor:
    out = torch.zeros(*args.index.shape, *args.input.shape[1:], dtype=args.input.dtype)
    for place in product(*map(range, args.index.shape)):
        out[place] = args.input[int(args.index[place])]
    return out


@by_schema
def npu_gather_sparse_index_backward(args: Arguments) -> Tensor:
    return _npu_index_add_(torch.zeros(list(args.self_sizes), dtype=args.grad.dtype), args.index, args.grad)


@by_schema
def npu_gather_backward(args: Arguments) -> Tensor:
    out = torch.zeros(list(args.self_size), dtype=torch.float64)
    for place in product(*map(range, args.index.shape)):
        target = list(place)
        target[args.dim] = int(args.index[place])
        out[tuple(target)] += float(args.grad[place])
    return out.to(args.grad.dtype)


@by_schema
def npu_scatter_nd_update_(args: Arguments) -> Tensor:
    for place in product(*map(range, args.indices.shape[:-1])):
        args.self[tuple(args.indices[place].tolist())] = args.updates[place]
    return args.self


@by_schema
def npu_scatter_nd_update(args: Arguments) -> Tensor:
    return npu_scatter_nd_update_(args.self.clone(), args.indices, args.updates)
