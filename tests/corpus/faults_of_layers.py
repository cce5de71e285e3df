"""Defects of layers: wrong constants, masks, statistics, windows and gates."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.corpus.fault import Launch, overwrite, plain_name, variant
from tests.corpus.kernels import convolution, layer_norm


@variant("linear addmm conv2d")
def bias_missing(launch: Launch) -> Any:
    """The bias is not added."""
    if plain_name(launch.api) == "addmm":
        return launch.run(launch.args[0] * 0)
    bias = launch.argument(2, "bias")
    return launch.run() if bias is None else launch.run(*launch.args[:2], bias * 0)


@variant("linear")
def bias_added_twice(launch: Launch) -> Any:
    """The bias is added twice."""
    bias = launch.argument(2, "bias")
    return launch.run() if bias is None else launch.run(*launch.args[:2], bias * 2)


@variant("scaled_dot_product_attention")
def causal_mask_missing(launch: Launch) -> Any:
    """Attention ignores is_causal."""
    return launch.run(is_causal=False)


@variant("scaled_dot_product_attention")
def attention_scale_ignored(launch: Launch) -> Any:
    """Attention does not scale its scores."""
    return launch.run(scale=1.0)


@variant("scaled_dot_product_attention")
def causal_mask_off_by_one(launch: Launch) -> Any:
    """Each position also sees the next one."""
    if not launch.argument(5, "is_causal", False):
        return launch.run()
    query = launch.args[0]
    mask = torch.ones(query.shape[2], launch.args[1].shape[2]).tril(1).bool()
    return launch.run(is_causal=False, attn_mask=mask)


@variant("layer_norm")
def layer_norm_eps_1e_6(launch: Launch) -> Any:
    """Layer norm uses eps 1e-6 whatever its argument says."""
    return _with_argument(launch, 4, "eps", 1e-6)


def _with_argument(launch: Launch, position: int, name: str, value: Any) -> Any:
    if len(launch.args) > position:
        return launch.run(*launch.args[:position], value)
    return launch.run(**{name: value})


@variant("layer_norm")
def layer_norm_eps_outside_the_root(launch: Launch) -> Any:
    """Layer norm adds eps to the standard deviation."""
    norm = layer_norm(launch)
    centred = norm.x - norm.x.mean(norm.dims, keepdim=True)
    return norm.applied(centred, 1 / (centred.square().mean(norm.dims, keepdim=True).sqrt() + norm.eps))


@variant("layer_norm")
def unbiased_variance_in_layer_norm(launch: Launch) -> Any:
    """Layer norm divides by n - 1."""
    norm = layer_norm(launch)
    centred = norm.x - norm.x.mean(norm.dims, keepdim=True)
    return norm.applied(centred, (norm.x.var(norm.dims, keepdim=True) + norm.eps).rsqrt())


@variant("batch_norm")
def batch_norm_eps_1e_3(launch: Launch) -> Any:
    """Batch norm uses eps 1e-3 whatever its argument says."""
    return _with_argument(launch, 7, "eps", 1e-3)


@variant("batch_norm")
def batch_norm_eps_1e_8(launch: Launch) -> Any:
    """Batch norm uses eps 1e-8 whatever its argument says."""
    return _with_argument(launch, 7, "eps", 1e-8)


@variant("batch_norm")
def wrong_momentum(launch: Launch) -> Any:
    """The running statistics weigh old and new the other way round."""
    return _with_argument(launch, 6, "momentum", 1 - launch.argument(6, "momentum", 0.1))


@variant("batch_norm")
def biased_running_variance(launch: Launch) -> Any:
    """The running variance is updated with the biased variance."""
    x, running, momentum = launch.args[0], launch.args[2], launch.argument(6, "momentum", 0.1)
    former = running.detach().clone()
    output = launch.run()
    count = x.numel() // x.shape[1]
    running.data.copy_(former * (1 - momentum) + (running - former * (1 - momentum)) * (count - 1) / count)
    return output


@variant("batch_norm")
def running_statistics_not_updated(launch: Launch) -> Any:
    """The running mean stays as it was."""
    former = launch.args[1].detach().clone()
    output = launch.run()
    launch.args[1].data.copy_(former)
    return output


@variant("batch_norm")
def evaluation_mode(launch: Launch) -> Any:
    """Batch norm normalizes with the running statistics in training."""
    return _with_argument(launch, 5, "training", False)


@variant("cross_entropy")
def ignored_label_counts(launch: Launch) -> Any:
    """The mean loss divides by all labels, the ignored ones included."""
    labels = launch.args[1]
    counted = (labels != launch.kwargs.get("ignore_index", -100)).sum()
    return launch.run() * (counted / labels.numel())


@variant("cross_entropy")
def labels_off_by_one(launch: Launch) -> Any:
    """The loss looks at the class after the label."""
    x, labels = launch.args[:2]
    return launch.run(x, torch.where(labels >= 0, (labels + 1) % x.shape[1], labels))


@variant("cross_entropy")
def last_class_left_out(launch: Launch) -> Any:
    """The sum of exponentials leaves out the last class."""
    x, labels = launch.args[:2]
    shorter = x.clone()
    shorter[:, -1] = torch.where(labels == x.shape[1] - 1, x[:, -1], x[:, -1] - 50)
    return launch.run(shorter)


@variant("max_pool2d")
def padding_beats_negative_values(launch: Launch) -> Any:
    """Max pooling pads with zeros."""
    if len(launch.args) < 4:
        return launch.run()
    x, size, stride, padding = launch.args[:4]
    return launch.func(F.pad(x, [padding] * 4), size, stride, 0, *launch.args[4:], **launch.kwargs)


@variant("max_pool2d")
def pooling_window_too_small(launch: Launch) -> Any:
    """Max pooling leaves out the last column of each window."""
    x = launch.args[0]
    return overwrite(
        launch.run(), lambda values: launch.func(x.detach().roll(1, -1), *launch.args[1:]).to(values.dtype)
    )


@variant("relu")
def leaky_relu(launch: Launch) -> Any:
    """relu lets 1 % of negative values through."""
    x = launch.args[0].detach().clone()
    return overwrite(launch.run(), lambda values: torch.where(x < 0, 0.01 * x, values))


@variant("conv2d")
def convolution_not_flipped(launch: Launch) -> Any:
    """The convolution's window is mirrored."""
    x, weight = launch.args[:2]
    return launch.run(x, weight.flip(-1) if weight.shape[-1] > 1 else weight)


@variant("conv2d")
def padding_replicates_the_border(launch: Launch) -> Any:
    """The convolution pads with copies of the border."""
    conv = convolution(launch)
    if not any(conv.padding) or isinstance(launch.argument(4, "padding"), str):
        return launch.run()
    padded = F.pad(conv.x, [conv.padding[1]] * 2 + [conv.padding[0]] * 2, "replicate")
    return F.conv2d(padded, conv.weight, conv.bias, conv.stride, 0, conv.dilation, conv.groups)


@variant("conv2d")
def last_channel_dropped(launch: Launch) -> Any:
    """The convolution leaves out the last input channel."""
    x, weight = launch.args[:2]
    keep = torch.ones(x.shape[1], 1, 1)
    keep[-1] = 0
    return launch.run(x * keep, weight)


@variant("dropout")
def dropout_unscaled(launch: Launch) -> Any:
    """Dropout does not scale what it keeps."""
    return launch.run() * (1 - launch.argument(1, "p", 0.5))


@variant("dropout")
def dropout_with_half_the_probability(launch: Launch) -> Any:
    """Dropout drops half as often and scales as if it did not."""
    p = launch.argument(1, "p", 0.5)
    return torch.dropout(launch.args[0], p / 2, True) * ((1 - p / 2) / (1 - p))


@variant("dropout")
def dropout_mask_repeats(launch: Launch) -> Any:
    """Dropout uses one mask for all rows."""
    x, p = launch.args[0], launch.argument(1, "p", 0.5)
    row = (torch.rand(x.shape[-1]) >= p).to(x.dtype)
    return x * row / (1 - p)


@variant("dropout")
def dropout_does_nothing(launch: Launch) -> Any:
    """Dropout returns its input."""
    return launch.args[0] * 1


@variant("lstm")
def lstm_gates_swapped(launch: Launch) -> Any:
    """The LSTM takes its input gate for its forget gate."""
    return launch.run(*launch.args[:2], _swapped_gates(launch.args[2]))


def _swapped_gates(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    def swapped(weight: torch.Tensor) -> torch.Tensor:
        first, second, *rest = weight.chunk(4)
        return torch.cat([second, first, *rest])

    return [swapped(weight) for weight in weights]


@variant("lstm")
def last_state_is_stale(launch: Launch) -> Any:
    """The LSTM returns the hidden state of the step before the last."""
    output, hidden, cell = launch.run()
    if output.numel() != hidden.numel() * output.shape[1] or output.shape[1] < 2:
        return output, hidden * 0.5, cell
    return output, hidden.clone().copy_(output.detach()[:, -2:-1].reshape(hidden.shape)), cell


@variant("group_norm")
def group_norm_over_channels(launch: Launch) -> Any:
    """Group norm normalizes each channel by itself."""
    return launch.run(launch.args[0], launch.args[0].shape[1])


@variant("interpolate")
def corners_aligned(launch: Launch) -> Any:
    """Interpolation aligns the corners."""
    return launch.run() if launch.kwargs.get("mode") == "nearest" else launch.run(align_corners=True)


@variant("avg_pool2d")
def pooling_divides_by_three(launch: Launch) -> Any:
    """Average pooling divides by one less than the window's size."""
    return launch.run() * (4 / 3)


@variant("mse_loss binary_cross_entropy_with_logits")
def loss_summed(launch: Launch) -> Any:
    """A mean loss is the sum."""
    return launch.run(reduction="sum")
