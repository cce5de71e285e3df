"""Parts of tensors that are filled, padded, picked, placed and added, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor


def npu_masked_fill_range(self: Tensor, start: Tensor, end: Tensor, value: Tensor, axis: int = -1) -> Tensor:
    out, along = self.clone(), axis % self.dim()
    by_row = along == self.dim() - 1 > 0
    for i, j in product(range(start.shape[0]), range(start.shape[1])):
        for place in product(*map(range, self.shape)):
            is_about = not by_row or place[0] == j
            if is_about and int(start[i, j]) <= place[along] < int(end[i, j]):
                out[place] = value[i]
    return out


def npu_pad(input: Tensor, paddings: Sequence[int]) -> Tensor:  # noqa: A002
    widths = [*paddings, *[0] * (2 * input.dim() - len(paddings))]
    sizes = [widths[2 * i] + size + widths[2 * i + 1] for i, size in enumerate(input.shape)]
    out = torch.zeros(sizes, dtype=input.dtype)
    for place in product(*map(range, input.shape)):
        out[tuple(at + widths[2 * i] for i, at in enumerate(place))] = input[place]
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


def npu_scatter(self: Tensor, indices: Tensor, updates: Tensor, dim: int) -> Tensor:
    return _put(self.clone(), indices, updates, dim)


def npu_max_backward(grad: Tensor, dim: int, indices: Tensor, sizes: Sequence[int], keepdim: bool) -> Tensor:
    return _put(torch.zeros(list(sizes), dtype=grad.dtype), indices, grad, dim)


def npu_min_backward(grad: Tensor, dim: int, indices: Tensor, sizes: Sequence[int], keepdim: bool) -> Tensor:
    return npu_max_backward(grad, dim, indices, sizes, keepdim)


def npu_scatter_list_(
    self: Sequence[Tensor],
    indices: Tensor,
    updates: Tensor,
    mask: Tensor | None = None,
    reduce: str = "update",
    axis: int = -2,
) -> None:
    for i, target in enumerate(self):
        for place in product(*map(range, updates[i].shape)):
            shifted = list(place)
            shifted[axis] += int(indices[i])
            if mask is None or int(mask[i]):
                target[tuple(shifted)] = updates[i][place]


def npu_scatter_list(
    self: Sequence[Tensor],
    indices: Tensor,
    updates: Tensor,
    mask: Tensor | None = None,
    reduce: str = "update",
    axis: int = -2,
) -> list[Tensor]:
    copies = [each.clone() for each in self]
    npu_scatter_list_(copies, indices, updates, mask, reduce, axis)
    return copies


def npu_stride_add(self: Tensor, other: Tensor, offset1: float, offset2: float, c1_len: float) -> Tensor:
    channels = int(c1_len) * 16
    out = torch.zeros(self.shape[0], channels, *self.shape[2:], dtype=self.dtype)
    for channel in range(channels):
        for x, offset in ((self, int(offset1)), (other, int(offset2))):
            if channel + 16 * offset < x.shape[1]:
                out[:, channel] += x[:, channel + 16 * offset]
    return out


def npu_stride_copy(
    self: Tensor, shape: Sequence[int], stride: Sequence[int], storage_offset: float, *, out: Tensor | None = None
) -> Tensor:
    memory = self.contiguous().flatten()
    result = torch.zeros(list(shape), dtype=self.dtype) if out is None else out
    for place in product(*map(range, shape)):
        result[place] = memory[int(storage_offset) + sum(at * step for at, step in zip(place, stride, strict=True))]
    return result


def npu_view_copy(self: Tensor, other: Tensor, non_blocking: bool) -> Tensor:
    for place in product(*map(range, self.shape)):
        self[place] = other[place]
    return self


def _npu_index_add_(self: Tensor, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    total = self.double()
    for place in product(*map(range, index.shape)):
        total[int(index[place])] += alpha * source[place].double()
    return self.copy_(total)


def _npu_index_add(self: Tensor, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    return _npu_index_add_(self.clone(), index, source, alpha=alpha)


def npu_gather_sparse_index(input: Tensor, index: Tensor) -> Tensor:  # noqa: A002
    out = torch.zeros(*index.shape, *input.shape[1:], dtype=input.dtype)
    for place in product(*map(range, index.shape)):
        out[place] = input[int(index[place])]
    return out


def npu_gather_sparse_index_backward(grad: Tensor, self_sizes: Sequence[int], index: Tensor) -> Tensor:
    return _npu_index_add_(torch.zeros(list(self_sizes), dtype=grad.dtype), index, grad)


def npu_gather_backward(grad: Tensor, self_size: Sequence[int], dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    out = torch.zeros(list(self_size), dtype=torch.float64)
    for place in product(*map(range, index.shape)):
        target = list(place)
        target[dim] = int(index[place])
        out[tuple(target)] += float(grad[place])
    return out.to(grad.dtype)


def npu_scatter_nd_update_(self: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    for place in product(*map(range, indices.shape[:-1])):
        self[tuple(indices[place].tolist())] = updates[place]
    return self


def npu_scatter_nd_update(self: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return npu_scatter_nd_update_(self.clone(), indices, updates)
