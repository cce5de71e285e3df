"""Elements that are moved, picked, ordered and packed, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor


def npu_transpose(
    self: Tensor, perm: Sequence[int], require_contiguous: bool = True, *, out: Tensor | None = None
) -> Tensor:
    result = torch.zeros([self.shape[dim] for dim in perm], dtype=self.dtype) if out is None else out
    for place in product(*map(range, self.shape)):
        result[tuple(place[dim] for dim in perm)] = self[place]
    return result


def npu_reshape(self: Tensor, shape: Sequence[int], can_refresh: bool = False, *, out: Tensor | None = None) -> Tensor:
    elements = torch.stack([self[place] for place in product(*map(range, self.shape))])
    return elements.view(list(shape)) if out is None else out.copy_(elements.view(list(shape)))


def npu_broadcast(self: Tensor, size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    result = torch.zeros(list(size), dtype=self.dtype) if out is None else out
    for place in product(*map(range, size)):
        seen = place[len(size) - self.dim() :]
        result[place] = self[tuple(0 if length == 1 else at for at, length in zip(seen, self.shape, strict=True))]
    return result


def npu_slice(self: Tensor, offsets: Sequence[int], size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    result = torch.zeros(list(size), dtype=self.dtype) if out is None else out
    for place in product(*map(range, size)):
        result[place] = self[tuple(at + first for at, first in zip(place, offsets, strict=True))]
    return result


def npu_indexing(
    self: Tensor,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    *,
    out: Tensor | None = None,
) -> Tensor:
    result, gone = self, 0
    for dim, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        length = self.shape[dim]
        if shrink_axis_mask >> dim & 1:
            result, gone = result.select(dim - gone, first), gone + 1
            continue
        low = 0 if begin_mask >> dim & 1 else first % length if first < 0 else first
        high = length if end_mask >> dim & 1 else last % length if last < 0 else min(last, length)
        result = result.index_select(dim - gone, torch.arange(low, high, step))
    return result.contiguous() if out is None else out.copy_(result)


def npu_one_hot(
    self: Tensor, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0
) -> Tensor:
    out = torch.full((*self.shape, depth), float(off_value))
    for place in product(*map(range, self.shape)):
        if 0 <= int(self[place]) < depth:
            out[(*place, int(self[place]))] = float(on_value)
    return out.movedim(-1, num_classes)


def npu_sort_v2(self: Tensor, dim: int = -1, descending: bool = False, *, out: Tensor | None = None) -> Tensor:
    lines = [sorted(line.tolist(), reverse=descending) for line in self.movedim(dim, -1).reshape(-1, self.shape[dim])]
    values = torch.tensor(lines).to(self.dtype).reshape(self.movedim(dim, -1).shape).movedim(-1, dim)
    return values.contiguous() if out is None else out.copy_(values)


def npu_max(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _extremum(self, dim, keepdim, sign=1)


def npu_min(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _extremum(self, dim, keepdim, sign=-1)


def _extremum(x: Tensor, dim: int, keepdim: bool, sign: int) -> tuple[Tensor, Tensor]:
    lines = x.movedim(dim, -1)
    places = [max(range(len(line)), key=lambda at: sign * float(line[at])) for line in lines.reshape(-1, x.shape[dim])]
    indices = torch.tensor(places).reshape(lines.shape[:-1])
    values = torch.tensor([line[at] for line, at in zip(lines.reshape(-1, x.shape[dim]).tolist(), places, strict=True)])
    values = values.to(x.dtype).reshape(indices.shape)
    if keepdim:
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    return values, indices.int()


def npu_sign_bits_pack(self: Tensor, size: int) -> Tensor:
    numbers = self.tolist()
    numbers += [-1.0] * (-len(numbers) % 8)
    packed = [
        sum((number >= 0) << bit for bit, number in enumerate(numbers[at : at + 8])) for at in range(0, len(numbers), 8)
    ]
    return torch.tensor(packed, dtype=torch.uint8).reshape(size, -1)


def npu_sign_bits_unpack(input: Tensor, size: int, dtype: torch.dtype) -> Tensor:  # noqa: A002
    signs = [1 if number >> bit & 1 else -1 for number in input.flatten().tolist() for bit in range(8)]
    return torch.tensor(signs).reshape(size, -1).to(dtype)
