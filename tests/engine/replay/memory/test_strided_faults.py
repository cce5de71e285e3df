"""Faults of kernels that misread or overwrite memory which is not contiguous are found, and named as such."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_msprobe.devices.device import Device
from tests.engine.replay.memory.strided_faults import (
    Misreading,
    MisreadingGradients,
    MisreadingSaved,
    WritingAround,
    WritingBehind,
    WritingLinearly,
    channels_last_linearly,
    expanded_densely,
    linearly,
    with_swapped_strides,
    without_offset,
)

LINEAR, OFFSET = Misreading(linearly), Misreading(without_offset)
CHANNELS, EXPANDED = Misreading(channels_last_linearly), Misreading(expanded_densely)
SWAPPED, OTHERS = Misreading(with_swapped_strides), Misreading(linearly, written=True)
GRADIENTS, DENSE_GRADIENTS = MisreadingGradients(linearly), MisreadingGradients(expanded_densely)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def turned(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(columns, rows).t()


def gapped(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, 2 * columns)[:, ::2]


def shifted(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(3 + rows * columns)[3:].view(rows, columns)


def expanded(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, 1).expand(rows, columns)


def nhwc(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def heads() -> torch.Tensor:
    return torch.randn(2, 6, 3, 4).transpose(1, 2)


@dataclass(frozen=True)
class Fault:
    program: Callable[[], Any]
    api: str
    device: Device
    direction: str = "forward"


FAULTS = {
    "softmax of a transposed matrix": Fault(lambda: F.softmax(turned(20, 30), -1), "softmax", LINEAR),
    "layer_norm of a transposed matrix": Fault(lambda: F.layer_norm(turned(6, 8), (8,)), "layer_norm", LINEAR),
    "sum over a gapped matrix": Fault(lambda: gapped(6, 8).sum(1), "sum", LINEAR),
    "mean of an expanded matrix": Fault(lambda: expanded(6, 8).mean(0), "mean", EXPANDED),
    "sum of an expanded matrix": Fault(lambda: torch.sum(expanded(6, 50), 1), "sum", EXPANDED),
    "max of a gapped matrix": Fault(lambda: torch.max(gapped(6, 8), 1), "max", LINEAR),
    "norm of a gapped matrix": Fault(lambda: gapped(6, 8).norm(), "norm", LINEAR),
    "contiguous of a transposed matrix": Fault(lambda: turned(6, 8).contiguous(), "contiguous", LINEAR),
    "clone of a transposed matrix": Fault(lambda: turned(6, 8).clone(), "clone", LINEAR),
    "reshape of a transposed matrix": Fault(lambda: turned(6, 8).reshape(-1), "reshape", LINEAR),
    "cast of a transposed matrix": Fault(lambda: turned(6, 8).to(torch.bfloat16), "to", LINEAR),
    "cat of slices": Fault(lambda: torch.cat([gapped(4, 5), gapped(4, 5)], 0), "cat", LINEAR),
    "stack of slices": Fault(lambda: torch.stack([gapped(4, 5), x(4, 5)]), "stack", LINEAR),
    "linear with a transposed weight": Fault(lambda: F.linear(x(3, 8), turned(5, 8)), "linear", LINEAR),
    "linear with a square weight": Fault(lambda: F.linear(x(3, 8), turned(8, 8)), "linear", SWAPPED),
    "matmul of a transposed matrix": Fault(lambda: torch.matmul(x(4, 6), turned(6, 5)), "matmul", LINEAR),
    "matmul of a square matrix": Fault(lambda: torch.matmul(turned(6, 6), x(6, 6)), "matmul", SWAPPED),
    "bmm of transposed matrices": Fault(lambda: torch.bmm(x(2, 3, 4), x(2, 5, 4).transpose(1, 2)), "bmm", LINEAR),
    "attention of split heads": Fault(
        lambda: F.scaled_dot_product_attention(heads(), heads(), heads()), "scaled_dot_product_attention", LINEAR
    ),
    "conv2d in channels_last": Fault(lambda: F.conv2d(nhwc(2, 8, 9, 9), x(4, 8, 3, 3)), "conv2d", CHANNELS),
    "conv2d with its weight in channels_last": Fault(
        lambda: F.conv2d(x(2, 8, 9, 9), nhwc(4, 8, 3, 3)), "conv2d", CHANNELS
    ),
    "avg_pool2d in channels_last": Fault(lambda: F.avg_pool2d(nhwc(1, 2, 4, 4), 2, 1, 1), "avg_pool2d", CHANNELS),
    "max_pool2d in channels_last": Fault(lambda: F.max_pool2d(nhwc(1, 3, 4, 4), 2), "max_pool2d", CHANNELS),
    "batch_norm in channels_last": Fault(
        lambda: F.batch_norm(nhwc(4, 3, 5, 5), torch.zeros(3), torch.ones(3), training=True), "batch_norm", CHANNELS
    ),
    "interpolate in channels_last": Fault(
        lambda: F.interpolate(nhwc(1, 3, 4, 4), scale_factor=2), "interpolate", CHANNELS
    ),
    "tanh of a permuted image": Fault(lambda: torch.tanh(x(1, 7, 4, 3).permute(0, 3, 1, 2)), "tanh", LINEAR),
    "embedding by a transposed index": Fault(
        lambda: F.embedding(torch.tensor([[0, 1, 2], [3, 1, 0]]).t(), x(5, 7)), "embedding", LINEAR
    ),
    "embedding of a transposed table": Fault(
        lambda: F.embedding(torch.tensor([1, 2]), turned(7, 5)), "embedding", LINEAR
    ),
    "index_select of a gapped matrix": Fault(
        lambda: gapped(6, 8).index_select(0, torch.tensor([0, 2])), "index_select", LINEAR
    ),
    "gather by an expanded index": Fault(
        lambda: x(4, 6).gather(1, torch.tensor([[5], [1], [0], [2]]).expand(4, 6)), "gather", EXPANDED
    ),
    "where by a transposed mask": Fault(lambda: torch.where(turned(6, 8) > 0, x(6, 8), x(6, 8)), "where", LINEAR),
    "cross entropy of transposed logits": Fault(
        lambda: F.cross_entropy(turned(6, 5), torch.tensor([0, 1, 2, 3, 4, 0])), "cross_entropy", LINEAR
    ),
    "softmax of a view with an offset": Fault(lambda: F.softmax(shifted(6, 8), -1), "softmax", OFFSET),
    "linear with an offset": Fault(lambda: F.linear(shifted(6, 8), x(5, 8)), "linear", OFFSET),
    "copy of a part": Fault(lambda: x(6, 8)[2:4].contiguous(), "contiguous", OFFSET),
    "sum of a part": Fault(lambda: x(6, 8)[2:4].sum(), "sum", OFFSET),
    "copy_ from a transposed matrix": Fault(lambda: x(6, 8).copy_(turned(6, 8)), "copy_", OTHERS),
    "add_ of an expanded matrix": Fault(lambda: x(6, 8).add_(expanded(6, 8)), "add_", OTHERS),
    "addcmul_ of transposed matrices": Fault(lambda: x(4, 6).addcmul_(turned(4, 6), x(4, 6)), "addcmul_", OTHERS),
    "addcdiv_ to a transposed matrix": Fault(
        lambda: turned(4, 6).addcdiv_(x(4, 6), x(4, 6).abs() + 1), "addcdiv_", WritingLinearly()
    ),
    "copy_ to a transposed matrix": Fault(lambda: turned(4, 6).copy_(x(4, 6)), "copy_", WritingLinearly()),
    "add_ to a transposed matrix": Fault(lambda: turned(4, 6).add_(x(4, 6)), "add_", WritingLinearly()),
    "mul_ between the elements": Fault(lambda: x(6, 8)[1:4, ::2].mul_(2.0), "mul_", WritingAround()),
    "copy_ between the elements": Fault(lambda: gapped(6, 8).copy_(x(6, 8)), "copy_", WritingAround()),
    "add_ between the elements": Fault(lambda: x(6, 9).select(1, 4).add_(1.0), "add_", WritingAround()),
    "out= between the elements": Fault(
        lambda: torch.add(x(6, 4), x(6, 4), out=torch.empty(6, 8)[:, :4]), "add", WritingAround()
    ),
    "uniform_ between the elements": Fault(lambda: x(40, 80)[:, ::2].uniform_(), "uniform_", WritingAround()),
    "relu_ behind the last element": Fault(lambda: x(6, 8)[:3].relu_(), "relu_", WritingBehind()),
    "gradient of tanh in channels_last": Fault(
        lambda: torch.tanh(leaf(1, 7, 4, 3).permute(0, 3, 1, 2)).sum().backward(),
        "tanh",
        MisreadingSaved(),
        "backward",
    ),
    "gradient of silu of a transposed matrix": Fault(
        lambda: F.silu(leaf(6, 4).t()).sum().backward(), "silu", MisreadingSaved(), "backward"
    ),
    "gradient of softmax of a transposed matrix": Fault(
        lambda: (F.softmax(leaf(6, 4).t(), -1) * x(4, 6)).sum().backward(), "softmax", MisreadingSaved(), "backward"
    ),
    "gradient of avg_pool2d in channels_last": Fault(
        lambda: (F.avg_pool2d(leaf(1, 2, 4, 4), 2, 1, 1).permute(0, 2, 3, 1) * x(1, 5, 5, 2)).sum().backward(),
        "avg_pool2d",
        GRADIENTS,
        "backward",
    ),
    "arriving gradient of a transposed result": Fault(
        lambda: (F.gelu(leaf(6, 8)).t() * x(8, 6)).sum().backward(), "gelu", GRADIENTS, "backward"
    ),
    "arriving gradient of attention": Fault(
        lambda: (
            F.scaled_dot_product_attention(leaf(2, 3, 6, 4), x(2, 3, 6, 4), x(2, 3, 6, 4)).transpose(1, 2)
            * x(2, 6, 3, 4)
        )
        .sum()
        .backward(),
        "scaled_dot_product_attention",
        GRADIENTS,
        "backward",
    ),
    "arriving gradient that a sum expanded": Fault(
        lambda: (F.layer_norm(leaf(6, 8), (8,), leaf(8)).sum(1) * x(6)).sum().backward(),
        "layer_norm",
        DENSE_GRADIENTS,
        "backward",
    ),
    "arriving gradient of linear": Fault(
        lambda: (F.linear(leaf(6, 8), leaf(5, 8)).t() * x(5, 6)).sum().backward(), "linear", GRADIENTS, "backward"
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_kernel_that_misreads_or_overwrites_memory_is_found(
    fault: Fault, task: str, recorded: Any, check: Any
) -> None:
    call = recorded(fault.program, fault.api, task)
    healthy, wrong = check(call), check(call, device=fault.device)
    assert (healthy.forward.outcome, getattr(healthy.backward, "outcome", "pass")) == ("pass", "pass")
    result = getattr(wrong, fault.direction)
    assert result.outcome == "fail"
    assert "; only with " in result.reason
