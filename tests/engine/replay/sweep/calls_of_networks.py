"""Calls that networks are made of: activations, layers, pooling, losses and recurrent layers."""

from __future__ import annotations

from typing import Any

import torch

from tests.engine.replay.sweep.inputs import Draw, flags, index

ACTIVATIONS = """relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid hardshrink softshrink
    softplus softsign tanhshrink logsigmoid""".split()


def activations(api: Any, x: Draw) -> None:
    nn = api.Functional
    for name in ACTIVATIONS:
        nn[name](x(4, 9))
    nn.relu(x(4, 9) * 1, inplace=True)
    nn.elu(x(4, 9) * 1, 1.0, True)
    nn.silu(x(4, 9) * 1, inplace=True)
    nn.hardtanh(x(4, 9), -0.5, 0.5)
    nn.threshold(x(4, 9), 0.1, 20.0)
    nn.softmax(x(4, 9), dim=-1)
    nn.softmax(x(4, 9), dim=1, dtype=torch.float32)
    nn.log_softmax(x(4, 9), 1)
    nn.softmin(x(4, 9), dim=0)
    nn.glu(x(4, 8), -1)
    nn.prelu(x(2, 3, 4), x(3))
    nn.gelu(x(4, 9), approximate="tanh")
    nn.normalize(x(4, 9), dim=1)
    api.Torch.softmax(x(4, 9), -1)
    api.Torch.relu_(x(4, 9) * 1)
    api.Torch.sigmoid(x(4, 9))


def layers(api: Any, x: Draw) -> None:
    nn = api.Functional
    nn.linear(x(4, 8), x(5, 8), x(5))
    nn.linear(x(2, 4, 8), x(5, 8))
    nn.bilinear(x(4, 3), x(4, 5), x(6, 3, 5), x(6))
    nn.conv1d(x(2, 3, 10), x(4, 3, 3), x(4), 1, 1)
    nn.conv2d(x(2, 3, 8, 8), x(4, 3, 3, 3), x(4), (1, 1), (1, 1), (1, 1), 1)
    nn.conv2d(x(1, 4, 6, 6), x(4, 1, 3, 3), None, padding="same", groups=4)
    nn.conv3d(x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2))
    nn.conv_transpose1d(x(1, 3, 5), x(3, 2, 3))
    nn.conv_transpose2d(x(1, 3, 5, 5), x(3, 2, 3, 3), stride=2)
    nn.layer_norm(x(4, 6, 8), (8,), x(8), x(8), 1e-5)
    nn.layer_norm(x(4, 6, 8), (6, 8))
    nn.rms_norm(x(4, 8), (8,), x(8), 1e-6)
    nn.group_norm(x(2, 6, 5), 3, x(6), x(6))
    nn.batch_norm(x(4, 3, 5), x.plain(3), x.positive(3).detach(), x(3), x(3), True, 0.1, 1e-5)
    nn.batch_norm(x(4, 3, 5), x.plain(3), x.positive(3).detach(), weight=x(3), bias=x(3), training=False)
    nn.instance_norm(x(2, 3, 7), x.plain(3), x.positive(3).detach(), x(3), x(3), True, 0.1, 1e-5)
    nn.local_response_norm(x(2, 6, 5), 3)
    nn.embedding(index(10, 3, 4), x(10, 6), padding_idx=1)
    nn.embedding_bag(index(10, 12), x(10, 6), torch.tensor([0, 4, 9]))
    nn.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 6, 8), x(2, 2, 6, 8))
    nn.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8), is_causal=True)
    nn.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8), flags(5, 5) | torch.eye(5).bool())


def pooling(api: Any, x: Draw) -> None:
    nn = api.Functional
    nn.max_pool1d(x(2, 3, 9), 3)
    nn.max_pool2d(x(2, 3, 9, 9), 3, 2, 1)
    nn.max_pool2d(x(2, 3, 9, 9), (2, 2), return_indices=True)
    nn.max_pool3d(x(1, 2, 4, 4, 4), 2)
    nn.avg_pool1d(x(2, 3, 9), 3)
    nn.avg_pool2d(x(2, 3, 8, 8), 2)
    if x.dtype is torch.float32:  # torch's CPU has it in no other
        nn.avg_pool3d(x(1, 2, 4, 4, 4), 2)
    nn.lp_pool2d(x.positive(2, 3, 8, 8), 2.0, 2)
    nn.adaptive_avg_pool1d(x(2, 3, 9), 4)
    nn.adaptive_avg_pool2d(x(2, 3, 9, 9), (3, 3))
    nn.adaptive_max_pool2d(x(2, 3, 9, 9), (3, 3))
    nn.max_unpool2d(x(2, 3, 4, 4), torch.arange(0, 64, 4).expand(2, 3, 16).reshape(2, 3, 4, 4), 2)
    nn.interpolate(x(1, 3, 4, 4), scale_factor=2, mode="nearest")
    nn.interpolate(x(1, 3, 4, 4), (7, 7), mode="bilinear", align_corners=False)
    nn.interpolate(x(1, 3, 4, 4), [8, 8], None, "bicubic", True)
    nn.grid_sample(x(1, 3, 5, 5), (x.unit(1, 4, 4, 2) * 2 - 1).detach(), align_corners=True)
    nn.affine_grid(x(1, 2, 3), (1, 3, 4, 4), align_corners=False)
    nn.pad(x(2, 3, 4, 4), (1, 1, 1, 1), mode="reflect")
    nn.pad(x(2, 3, 4), (1, 2), "constant", 1.0)
    nn.pixel_shuffle(x(1, 8, 3, 3), 2)
    nn.unfold(x(1, 3, 6, 6), (2, 2))
    nn.fold(x(1, 12, 9), (4, 4), (2, 2))


def losses(api: Any, x: Draw) -> None:
    nn = api.Functional
    nn.cross_entropy(x(6, 5), index(5, 6))
    nn.cross_entropy(x(6, 5), torch.tensor([0, -100, 3, 4, -100, 1]), ignore_index=-100, label_smoothing=0.1)
    nn.cross_entropy(x(6, 5), index(5, 6), x.positive(5).detach(), None, -100, None, "sum")
    nn.cross_entropy(x(2, 5, 4), index(5, 2, 4), reduction="none")
    nn.cross_entropy(x(6, 5), x(6, 5).softmax(1).detach())
    nn.nll_loss(x(6, 5), index(5, 6))
    nn.mse_loss(x(4, 6), x(4, 6))
    nn.l1_loss(x(4, 6), x(4, 6))
    nn.smooth_l1_loss(x(4, 6), x(4, 6), reduction="sum")
    nn.huber_loss(x(4, 6), x(4, 6))
    nn.kl_div(x(4, 6), x.unit(4, 6), reduction="batchmean")
    nn.binary_cross_entropy(x.unit(4, 6), x.unit(4, 6).detach())
    nn.binary_cross_entropy_with_logits(x(4, 6), x.unit(4, 6).detach())
    nn.cosine_similarity(x(4, 6), x(4, 6), dim=1)
    nn.cosine_embedding_loss(x(4, 6), x(4, 6), torch.tensor([1, -1, 1, -1]))
    nn.margin_ranking_loss(x(6), x(6), torch.tensor([1, -1, 1, -1, 1, 1]))
    nn.hinge_embedding_loss(x(6), torch.tensor([1, -1, 1, -1, 1, 1]))
    nn.triplet_margin_loss(x(4, 6), x(4, 6), x(4, 6))
    if x.dtype is torch.float32:  # torch's CPU has it in no other
        nn.multi_margin_loss(x(4, 6), index(6, 4))
    nn.soft_margin_loss(x(6), torch.tensor([1.0, -1, 1, -1, 1, 1]).to(x.dtype))
    nn.poisson_nll_loss(x(4, 6), x.positive(4, 6).detach())
    nn.gaussian_nll_loss(x(4, 6), x(4, 6).detach(), x.positive(4, 6))
    nn.ctc_loss(
        torch.randn(9, 2, 5).log_softmax(-1).requires_grad_(),
        index(4, 2, 3) + 1,
        torch.tensor([9, 9]),
        torch.tensor([3, 2]),
    )
    nn.one_hot(index(5, 6), 5)
    nn.pairwise_distance(x(4, 6), x(4, 6))


def recurrent(api: Any, x: Draw) -> None:
    weights = [x(16, 3), x(16, 4), x(16), x(16)]
    api.VF.lstm(x(5, 2, 3), (x(1, 2, 4), x(1, 2, 4)), weights, True, 1, 0.0, True, False, False)
    api.VF.lstm(x(9, 3), torch.tensor([3, 3, 2, 1]), (x(1, 3, 4), x(1, 3, 4)), weights, True, 1, 0.0, True, False)
    api.VF.gru(x(5, 2, 3), x(1, 2, 4), [x(12, 3), x(12, 4), x(12), x(12)], True, 1, 0.0, True, False, False)
    api.Torch.lstm_cell(x(2, 3), (x(2, 4), x(2, 4)), *weights)
    api.Torch.gru_cell(x(2, 3), x(2, 4), x(12, 3), x(12, 4), x(12), x(12))
    api.Torch.rnn_tanh_cell(x(2, 3), x(2, 4), x(4, 3), x(4, 4), x(4), x(4))
