"""Operators, as they reach a kernel."""

from __future__ import annotations

from typing import Any

import torch

from tests.engine.replay.sweep.inputs import Draw, flags, index


def aten(api: Any, x: Draw) -> None:
    at = api.Aten
    at.add.Tensor(x(3, 5), x(3, 5))
    at.add_.Tensor(x(3, 5) * 1, x(3, 5))
    at.mul(x(3, 5), x(3, 5))
    at._softmax.default(x(3, 5), -1, False)
    at._log_softmax.default(x(3, 5), -1, False)
    at.addmm.default(x(4), x(3, 5), x(5, 4))
    at.bmm.default(x(2, 3, 4), x(2, 4, 5))
    at.native_layer_norm.default(x(3, 5), [5], x(5), x(5), 1e-5)
    at.native_group_norm.default(x(2, 6, 4), x(6), x(6), 2, 6, 4, 3, 1e-5)
    at.native_batch_norm.default(x(4, 3, 5), x(3), x(3), x.plain(3), x.positive(3).detach(), True, 0.1, 1e-5)
    at.convolution.default(x(1, 3, 6, 6), x(4, 3, 3, 3), x(4), [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    at.max_pool2d_with_indices.default(x(1, 3, 6, 6), [2, 2], [2, 2])
    at.avg_pool2d.default(x(1, 3, 6, 6), [2, 2])
    at.embedding.default(x(10, 4), index(10, 3))
    at.index.Tensor(x(4, 6), [index(4, 3), index(6, 3)])
    at.index_select.default(x(4, 6), 0, index(4, 3))
    at.gather.default(x(4, 6), 1, index(6, 4, 2))
    at.nll_loss_forward.default(x(6, 5), index(5, 6), None, 1, -100)
    at.sum.dim_IntList(x(3, 5), [1], True)
    at.mean.dim(x(3, 5), [-1])
    at.topk.default(x(3, 5), 2)
    at.sort.default(x(3, 5), 1)
    at.argmax.default(x(3, 5), 1)
    at.cat.default([x(3, 5), x(2, 5)])
    at.stack.default([x(3, 5), x(3, 5)])
    at.split.Tensor(x(6, 4), 2)
    at.view.default(x(3, 4), [4, 3])
    at._to_copy.default(x(3, 4), dtype=torch.float32)
    at.where.self(flags(3, 4), x(3, 4), x(3, 4))
    at.gelu.default(x(3, 4))
    at.gelu_backward.default(x.plain(3, 4), x.plain(3, 4))
    at.threshold_backward.default(x.plain(3, 4), x.plain(3, 4), 0)
    if x.dtype is torch.float32:
        mean, rstd = x.plain(3, 1), x.positive(3, 1).detach()
        at.native_layer_norm_backward.default(
            x.plain(3, 5), x.plain(3, 5), [5], mean, rstd, x.plain(5), x.plain(5), [True, True, True]
        )
    at.clamp.default(x(3, 4), -1, 1)
    at.pow.Tensor_Scalar(x(3, 4), 3)
    at.linear.default(x(3, 4), x(5, 4))
