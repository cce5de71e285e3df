"""Calls that are cut into blocks, recorded in a dtype: each a few blocks of 20 000 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


CALLS: dict[str, Callable[[Any, torch.dtype], Any]] = {
    "linear by columns": lambda of, d: of.Functional.linear(x(30, 40, dtype=d), x(500, 40, dtype=d), x(500, dtype=d)),
    "linear by rows": lambda of, d: of.Functional.linear(x(2, 200, 40, dtype=d), x(50, 40, dtype=d)),
    "mm": lambda of, d: of.Torch.mm(x(30, 40, dtype=d), x(40, 500, dtype=d)),
    "bmm": lambda of, d: of.Torch.bmm(x(9, 30, 40, dtype=d), x(9, 40, 30, dtype=d)),
    "addmm": lambda of, d: of.Torch.addmm(x(500, dtype=d), x(30, 40, dtype=d), x(40, 500, dtype=d), beta=0.5),
    "embedding": lambda of, d: of.Functional.embedding(torch.randint(0, 100, (60,)), x(100, 64, dtype=d)),
    "softmax": lambda of, d: of.Functional.softmax(x(60, 100, dtype=d), dim=-1),
    "layer_norm": lambda of, d: of.Functional.layer_norm(x(90, 100, dtype=d), (100,), x(100, dtype=d), x(100, dtype=d)),
    "gelu": lambda of, d: of.Functional.gelu(x(90, 100, dtype=d)),
    "add": lambda of, d: of.Torch.add(x(90, 100, dtype=d), x(100, dtype=d)),
    "cross_entropy": lambda of, d: of.Functional.cross_entropy(x(90, 100, dtype=d), torch.randint(0, 100, (90,))),
    "smooth labels": lambda of, d: of.Functional.cross_entropy(
        x(90, 100, dtype=d), torch.randint(0, 100, (90,)), torch.rand(100).to(d), label_smoothing=0.1
    ),
    "mse_loss": lambda of, d: of.Functional.mse_loss(x(90, 100, dtype=d), x(90, 100, dtype=d), reduction="sum"),
    "einsum": lambda of, d: of.Torch.einsum("bij,jk->bki", x(4, 60, 40, dtype=d), x(40, 50, dtype=d)),
    "group_norm": lambda of, d: of.Functional.group_norm(x(90, 4, 25, dtype=d), 2, x(4, dtype=d), x(4, dtype=d)),
    "instance_norm": lambda of, d: of.Functional.instance_norm(
        x(9, 10, 100, dtype=d), None, None, x(10, dtype=d), x(10, dtype=d), True
    ),
    "batch_norm": lambda of, d: of.Functional.batch_norm(
        x(90, 100, dtype=d), None, None, x(100, dtype=d), x(100, dtype=d), True
    ),
    "conv2d": lambda of, d: of.Functional.conv2d(
        x(9, 4, 12, 15, dtype=d), x(6, 2, 3, 3, dtype=d), x(6, dtype=d), stride=(2, 1), padding=1, groups=2
    ),
    "conv1d by channels": lambda of, d: of.Functional.conv1d(
        x(1, 8, 40, dtype=d), x(200, 8, 5, dtype=d), padding="same"
    ),
    "conv_transpose2d": lambda of, d: of.Functional.conv_transpose2d(
        x(9, 4, 9, 9, dtype=d), x(4, 5, 4, 4, dtype=d), x(5, dtype=d), 2, 1
    ),
    "running statistics": lambda of, d: of.Functional.batch_norm(
        x(9, 20, 5, 10, dtype=d), torch.rand(20), torch.rand(20), x(20), x(20), True, 0.2
    ),
    "given statistics": lambda of, d: of.Functional.batch_norm(x(90, 100, dtype=d), torch.rand(100), torch.rand(100)),
    "relu in place": lambda of, d: of.Functional.relu(x(90, 100, dtype=d) * 2, inplace=True),
    "add in place": lambda of, d: of.Tensor["__iadd__"](x(90, 100, dtype=d) * 2, x(100, dtype=d)),
    "a product in place": lambda of, d: of.Tensor["mul_"](torch.randn(90, 100).to(d), x(90, 1, dtype=d)),
    "attention": lambda of, d: of.Functional.scaled_dot_product_attention(
        x(3, 4, 15, 8, dtype=d), x(3, 4, 12, 8, dtype=d), x(3, 4, 12, 9, dtype=d), torch.randn(4, 15, 12).to(d)
    ),
    "causal attention": lambda of, d: of.Functional.scaled_dot_product_attention(
        x(2, 6, 30, 8, dtype=d), x(2, 6, 30, 8, dtype=d), x(2, 6, 30, 8, dtype=d), is_causal=True
    ),
    "half": lambda of, d: of.Tensor.half(x(90, 100, dtype=d)),
    "float": lambda of, d: of.Tensor.float(x(90, 100, dtype=d)),
    "to": lambda of, d: of.Tensor.to(x(90, 100, dtype=d), dtype=torch.bfloat16),
    "indexing": lambda of, d: of.Tensor["__getitem__"](x(2, 90, 100, dtype=d), (1, slice(None, -1))),
    "linear under autocast": lambda of, d: under_autocast(
        d, lambda: of.Functional.linear(x(200, 40, dtype=d), x(50, 40, dtype=d), x(50, dtype=d))
    ),
    "softmax under autocast": lambda of, d: under_autocast(
        d, lambda: of.Functional.softmax(x(60, 100, dtype=d), dim=-1)
    ),
}


def under_autocast(dtype: torch.dtype, record: Callable[[], Any]) -> Any:
    with torch.autocast("cpu", torch.bfloat16 if dtype is torch.float32 else dtype):
        return record()
