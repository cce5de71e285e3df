"""Calls of the operators that move, pick, place and add parts of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def _below(generator: torch.Generator, high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=generator)


def _filled(generator: torch.Generator, shape: list[int], axis: int, rows: int) -> Call:
    start = _below(generator, 3, 2, rows).int()
    return Call(
        (draw(generator, *shape), start, start + _below(generator, 3, 2, rows).int(), torch.tensor([1.0, -2.0]), axis)
    )


def _listed(generator: torch.Generator, *, masked: bool, axis: int = -2) -> Call:
    targets = [draw(generator, 2, 6, 4, dtype=HALF) for _ in range(3)]
    updates = draw(generator, 3, 2, 1, 4, dtype=HALF) if axis == -2 else draw(generator, 3, 2, 6, 1, dtype=HALF)
    places = _below(generator, 4, 3).int()
    return Call(
        (targets, places, updates, torch.tensor([1, 0, 1], dtype=torch.uint8) if masked else None, "update", axis)
    )


def _greatest(generator: torch.Generator, *, keepdim: bool) -> Call:
    x = draw(generator, 3, 4, 5)
    grad, indices = x.max(1, keepdim)
    return Call((grad, 1, indices.int(), [3, 4, 5], keepdim))


def _added(generator: torch.Generator, **kwargs: Any) -> Call:
    return Call((draw(generator, 6, 4), _below(generator, 6, 2, 3), draw(generator, 2, 3, 4)), kwargs)


def _written(generator: torch.Generator) -> Call:
    places = torch.randperm(9, generator=generator)[:4].reshape(4, 1)
    return Call((draw(generator, 9, 4, dtype=BRAIN), places, draw(generator, 4, 4, dtype=BRAIN)))


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_masked_fill_range": lambda g: _filled(g, [4, 4], 1, 4),
    "npu_masked_fill_range-rows": lambda g: _filled(g, [5, 4], 0, 1),
    "npu_masked_fill_range-line": lambda g: _filled(g, [6], 0, 1),
    "npu_masked_fill_range-space": lambda g: _filled(g, [3, 2, 5], -1, 3),
    "npu_pad": lambda g: Call((draw(g, 2, 3, dtype=HALF), [1, 0, 2, 1])),
    "npu_pad-first": lambda g: Call((draw(g, 2, 3), [1, 2])),
    "npu_scatter": lambda g: Call((draw(g, 3, 4), _below(g, 3, 4).int(), draw(g, 4), 0)),
    "npu_scatter-whole": lambda g: Call((draw(g, 3, 4), torch.tensor([[2], [0], [3]]), draw(g, 3, 1), 1)),
    "npu_scatter_list": lambda g: _listed(g, masked=True),
    "npu_scatter_list-last": lambda g: _listed(g, masked=False, axis=-1),
    "npu_scatter_list_": lambda g: _listed(g, masked=False),
    "npu_stride_add": lambda g: Call((draw(g, 1, 20, 2, 1), draw(g, 1, 40, 2, 1), 0, 1, 2)),
    "npu_stride_copy": lambda g: Call((draw(g, 3, 4), [2, 3], [4, 1], 2)),
    "npu_view_copy": lambda g: Call((draw(g, 3, 4), draw(g, 3, 4), False)),
    "_npu_index_add": lambda g: _added(g),
    "_npu_index_add_": lambda g: _added(g, alpha=2.5),
    "npu_gather_sparse_index": lambda g: Call((draw(g, 6, 4, dtype=HALF), _below(g, 6, 2, 3)), differentiate=True),
    "npu_gather_sparse_index_backward": lambda g: Call((draw(g, 2, 3, 4), [6, 4], _below(g, 6, 2, 3))),
    "npu_gather_backward": lambda g: Call((draw(g, 3, 5), [3, 4], 1, _below(g, 4, 3, 5), False)),
    "npu_max_backward": lambda g: _greatest(g, keepdim=False),
    "npu_min_backward": lambda g: _greatest(g, keepdim=True),
    "npu_scatter_nd_update": _written,
    "npu_scatter_nd_update_": _written,
    "npu_transpose": lambda g: Call((draw(g, 2, 3, 4, dtype=HALF), [2, 0, 1])),
    "npu_reshape": lambda g: Call((draw(g, 2, 6).T, [3, 4])),
    "npu_broadcast": lambda g: Call((draw(g, 3, 1), [2, 3, 4])),
    "npu_slice": lambda g: Call((draw(g, 4, 5), [1, 2], [2, 3])),
    "npu_indexing": lambda g: Call((draw(g, 4, 6), [1, 0], [3, -1], [1, 2])),
    "npu_indexing-masks": lambda g: Call((draw(g, 4, 6, 3), [1, 2, 1], [0, 9, 1], [1, 1, 1], 2, 3, 0, 0, 4)),
    "npu_one_hot": lambda g: Call((torch.tensor([5, 3, 2, 1], dtype=torch.int32),), {"depth": 5}),
    "npu_one_hot-first": lambda g: Call((_below(g, 4, 2, 3).int(), 0, 4, 2.5, -1.0)),
    "npu_sort_v2": lambda g: Call((draw(g, 3, 5, dtype=HALF),)),
    "npu_sort_v2-down": lambda g: Call((draw(g, 3, 5), 0, True)),
    "npu_max": lambda g: Call((draw(g, 2, 3, 4), 1), differentiate=True),
    "npu_min": lambda g: Call((draw(g, 2, 3, 4), 2, True), differentiate=True),
    "npu_sign_bits_pack": lambda g: Call((draw(g, 27), 2)),
    "npu_sign_bits_unpack": lambda g: Call((_below(g, 256, 6).to(torch.uint8), 2, SINGLE)),
}
