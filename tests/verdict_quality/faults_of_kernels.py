"""Defects of kernels: lost elements, wrong indices, swapped operands, wrong constants, stale memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from pytest_msprobe.replay.tree import map_tensors
from tests.verdict_quality.fault import (
    Launch,
    convolution,
    exactly,
    layer_norm,
    overwrite,
    plain_name,
    substitute,
    variant,
)

PRODUCTS = "matmul linear addmm bmm"
ELEMENTWISE = "add sub rsub mul div sqrt pow rsqrt tanh sigmoid silu sin cos relu addcmul addcdiv lerp"
MOVES = "embedding getitem cat where transpose unsqueeze view_as reshape flatten split pad"
OPTIMIZER = "add mul lerp addcmul addcdiv"


@variant(f"{ELEMENTWISE} {PRODUCTS} {MOVES} softmax layer_norm batch_norm conv2d max_pool2d")
def last_element_dropped(launch: Launch) -> Any:
    """The last element of each result stays zero."""

    def drop(values: torch.Tensor) -> torch.Tensor:
        values.view(-1)[-1] = 0
        return values

    return overwrite(launch.run(), lambda values: drop(values.contiguous()))


@variant(f"{PRODUCTS} softmax layer_norm {ELEMENTWISE}")
def last_column_dropped(launch: Launch) -> Any:
    """The last column of each result stays zero."""

    def drop(values: torch.Tensor) -> torch.Tensor:
        if values.dim():
            values[..., -1] = 0
        return values

    return overwrite(launch.run(), drop)


@variant("matmul linear addmm bmm")
def last_inner_index_dropped(launch: Launch) -> Any:
    """Matrix products leave out the last index of the inner dimension."""
    first = 1 if plain_name(launch.api) == "addmm" else 0
    args = list(launch.args)
    keep = torch.ones(args[first].shape[-1], dtype=args[first].dtype)
    keep[-1] = 0
    args[first] = args[first] * keep
    return launch.run(*args)


@variant(PRODUCTS)
def tile_of_zeros(launch: Launch) -> Any:
    """A tile of 8 x 8 elements is never written."""

    def drop(values: torch.Tensor) -> torch.Tensor:
        values.view(-1, *values.shape[-2:])[-1, -8:, -8:] = 0
        return values

    return overwrite(launch.run(), drop)


@variant(f"{ELEMENTWISE} {PRODUCTS} layer_norm batch_norm conv2d softmax")
def one_wrong_element(launch: Launch) -> Any:
    """One element of each result is half as large as it should be."""

    def change(values: torch.Tensor) -> torch.Tensor:
        values = values.contiguous()
        values.view(-1)[values.numel() * 2 // 3] *= 0.5
        return values

    return overwrite(launch.run(), change)


@variant(f"{ELEMENTWISE} {PRODUCTS} layer_norm conv2d {MOVES}")
def bit_flip(launch: Launch) -> Any:
    """Bit 18 of one float32 element is flipped."""

    def flip(values: torch.Tensor) -> torch.Tensor:
        values = values.contiguous()
        if values.dtype == torch.float32:
            values.view(torch.int32).view(-1)[values.numel() // 2] ^= 1 << 18
        return values

    return overwrite(launch.run(), flip)


@variant()
def stale_output(launch: Launch) -> Any:
    """Every third result is what the same buffer held before: the previous result of this shape."""
    output = launch.run()
    count = launch.memory["count"] = launch.memory.get("count", 0) + 1

    def swap(values: torch.Tensor) -> torch.Tensor:
        key = (launch.api, values.dtype, values.shape)
        former = launch.memory.get(key)
        launch.memory[key] = values
        return values if former is None or count % 3 else former

    return overwrite(output, swap)


@variant("tanh sigmoid silu relu softmax sqrt rsqrt sin cos pow")
def input_returned(launch: Launch) -> Any:
    """A function returns its input unchanged."""
    return overwrite(launch.run(), lambda values: launch.args[0].detach().to(values.dtype))


@variant(OPTIMIZER)
def in_place_result_not_written(launch: Launch) -> Any:
    """An in-place operation returns the right result and leaves the tensor as it was."""
    if not launch.in_place or not isinstance(launch.args[0], torch.Tensor):
        return launch.run()
    former = launch.args[0].detach().clone()
    result = launch.run()
    right = result.clone()
    result.data.copy_(former)
    return right


@variant(f"{PRODUCTS} {ELEMENTWISE} layer_norm softmax conv2d")
def argument_overwritten(launch: Launch) -> Any:
    """A kernel writes past its output: the first element of its first argument becomes zero."""
    output = launch.run()
    first = launch.args[0]
    if not launch.in_place and isinstance(first, torch.Tensor) and first.numel():
        first.data.view(-1)[0] = 0
    return output


@variant(f"{PRODUCTS} softmax layer_norm mean conv2d")
def wider_output_dtype(launch: Launch) -> Any:
    """Results come as float64."""
    return map_tensors(torch.Tensor.double, launch.run())


@variant(f"{PRODUCTS} softmax layer_norm mean conv2d")
def narrower_output_dtype(launch: Launch) -> Any:
    """Results come as float16."""
    return map_tensors(torch.Tensor.half, launch.run())


@variant("sub rsub div")
def operands_swapped(launch: Launch) -> Any:
    """a - b is b - a, a / b is b / a."""
    output = launch.run()
    change = torch.Tensor.reciprocal if plain_name(launch.api) == "div" else torch.Tensor.neg
    return map_tensors(lambda tensor: change(tensor) if tensor.is_floating_point() else -tensor, output)


@variant("matmul bmm")
def operand_not_transposed(launch: Launch) -> Any:
    """The right operand is read in the order of its transpose."""
    right = launch.args[1]
    return launch.run(launch.args[0], right.mT.reshape(right.shape))


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


@variant("softmax cat")
def wrong_dimension(launch: Launch) -> Any:
    """The operation runs along the neighbouring dimension."""
    right = launch.run()
    x = launch.args[0]
    if plain_name(launch.api) == "cat":
        dim = launch.argument(1, "dim", 0)
        other = torch.cat([tensor.flip(dim) for tensor in x], dim=dim)
    else:
        other = x.detach().to(right.dtype).softmax(-2)
    return substitute(right, other.detach().to(right.dtype))


@variant("cat")
def parts_in_wrong_order(launch: Launch) -> Any:
    """cat joins its parts last to first."""
    return launch.run(list(reversed(launch.args[0])))


@variant("split")
def pieces_in_wrong_order(launch: Launch) -> Any:
    """split returns its pieces last to first."""
    return tuple(reversed(launch.run()))


@variant("embedding")
def embedding_off_by_one(launch: Launch) -> Any:
    """embedding reads the next row."""
    return launch.run((launch.args[0] + 1).clamp(max=launch.args[1].shape[0] - 1))


@variant("embedding")
def last_row_out_of_reach(launch: Launch) -> Any:
    """embedding reads the row before the last one in its place."""
    return launch.run(launch.args[0].clamp(max=launch.args[1].shape[0] - 2))


@variant("getitem")
def index_off_by_one(launch: Launch) -> Any:
    """Indexing starts one element late."""
    return overwrite(launch.run(), lambda values: values.roll(-1, -1) if values.dim() else values)


@variant("transpose")
def transposition_ignored(launch: Launch) -> Any:
    """transpose changes the shape and leaves the elements in place."""
    output = launch.run()
    return substitute(output, launch.args[0].detach().reshape(output.shape))


@variant("where")
def condition_inverted(launch: Launch) -> Any:
    """where takes the other side."""
    return launch.run(~launch.args[0])


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
    query = launch.args[0]
    mask = torch.ones(query.shape[2], launch.args[1].shape[2]).tril(1).bool()
    return launch.run(is_causal=False, attn_mask=mask)


@variant("layer_norm")
def layer_norm_eps_1e_6(launch: Launch) -> Any:
    """Layer norm uses eps 1e-6 whatever it is told."""
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
    """Batch norm uses eps 1e-3 whatever it is told."""
    return _with_argument(launch, 7, "eps", 1e-3)


@variant("batch_norm")
def batch_norm_eps_1e_8(launch: Launch) -> Any:
    """Batch norm uses eps 1e-8 whatever it is told."""
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


@variant("arange")
def arange_starts_at_one(launch: Launch) -> Any:
    """arange is shifted by its step."""
    return launch.run() + 1


@variant("cumsum")
def cumsum_restarts(launch: Launch) -> Any:
    """cumsum starts again after 8 elements."""
    dim = launch.argument(1, "dim", -1)
    return torch.cat([part.cumsum(dim) for part in launch.args[0].split(8, dim)], dim)


@variant("add sub mul diff cumsum arange")
def integers_wrap_at_eight_bits(launch: Launch) -> Any:
    """Integers are computed in int8."""
    output = launch.run()
    if launch.in_place:
        return output
    return map_tensors(
        lambda tensor: tensor if tensor.is_floating_point() else tensor.to(torch.int8).to(tensor.dtype), output
    )


@variant("le ne eq")
def comparison_off_by_equality(launch: Launch) -> Any:
    """<= is <, and == and != look at the values' low bit only."""
    left, right = launch.args[:2]
    if plain_name(launch.api) == "le":
        return left < right
    return (left & 1) == (right & 1) if plain_name(launch.api) == "eq" else (left & 1) != (right & 1)


@variant("all")
def all_looks_at_one(launch: Launch) -> Any:
    """all looks at the last element only."""
    return launch.args[0].reshape(-1)[-1].clone()


@variant("pad")
def padding_on_the_other_side(launch: Launch) -> Any:
    """pad puts the values in front."""
    return launch.run(launch.args[0], list(reversed(launch.args[1])))


@variant("max_pool2d")
def padding_beats_negative_values(launch: Launch) -> Any:
    """Max pooling pads with zeros."""
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
    if not any(conv.padding):
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


@variant("adaptive_avg_pool2d mean")
def mean_divides_by_one_less(launch: Launch) -> Any:
    """A mean over n elements divides by n - 1."""
    output = launch.run()
    count = launch.args[0].numel() // output.numel()
    return output if count < 2 else output * (count / (count - 1))


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


@variant("lerp")
def lerp_weight_inverted(launch: Launch) -> Any:
    """lerp weighs the ends the other way round."""
    return launch.run(*launch.args[:2], 1 - launch.args[2])


@variant("addcmul addcdiv")
def value_ignored(launch: Launch) -> Any:
    """addcmul and addcdiv take their value for 1."""
    return launch.run(value=1.0)


@variant("add")
def small_addend_lost(launch: Launch) -> Any:
    """An addend below 1e-7 is taken for zero."""
    addend = launch.args[1]
    if isinstance(addend, float) and abs(addend) < 1e-7:
        return launch.run(launch.args[0], 0.0)
    return launch.run()


@variant("pow")
def power_of_magnitude(launch: Launch) -> Any:
    """pow ignores the sign of its base."""
    return overwrite(launch.run(), torch.Tensor.abs)


@variant("sin cos")
def sin_and_cos_swapped(launch: Launch) -> Any:
    """sin computes cos and cos computes sin."""
    other = torch.cos if launch.api == "sin" else torch.sin
    return overwrite(launch.run(), lambda values: other(launch.args[0].detach()).to(values.dtype))


@variant("sqrt div addcdiv")
def wrong_in_the_sixth_digit(launch: Launch) -> Any:
    """Results are too large by two parts in a million."""
    exact = exactly(launch)
    return overwrite(launch.run(), lambda values: (exact * (1 + 2e-6)).to(values.dtype))


@variant("topk sort")
def values_unsorted(launch: Launch) -> Any:
    """topk and sort return the first two values in the wrong order."""
    values, indices = launch.run()
    order = [1, 0, *range(2, values.shape[-1])]
    return values[..., order], indices[..., order]


@variant("argmax argsort max")
def argmax_off_by_one(launch: Launch) -> Any:
    """Indices of greatest elements and orders are one too large."""
    size = launch.args[0].shape[-1]
    return map_tensors(
        lambda tensor: tensor if tensor.is_floating_point() else (tensor + 1).clamp(max=size - 1), launch.run()
    )


@variant("gather index_select")
def gathered_off_by_one(launch: Launch) -> Any:
    """gather and index_select read the next element."""
    x, dim, index = launch.args[:3]
    return launch.run(x, dim, (index + 1).clamp(max=x.shape[dim] - 1))


@variant("scatter_add")
def scattered_instead_of_added(launch: Launch) -> Any:
    """scatter_add overwrites instead of adding."""
    return launch.args[0].scatter(*launch.args[1:4])


@variant("masked_fill")
def mask_inverted(launch: Launch) -> Any:
    """masked_fill fills the other elements."""
    return launch.run(launch.args[0], ~launch.args[1])


@variant("gelu")
def gelu_by_tanh(launch: Launch) -> Any:
    """gelu uses the tanh approximation whatever it is told."""
    return launch.run(approximate="tanh")


@variant("var std")
def biased_variance(launch: Launch) -> Any:
    """Variance and standard deviation divide by n."""
    return launch.run(unbiased=False)


@variant("logsumexp softmax log_softmax")
def greatest_element_not_subtracted(launch: Launch) -> Any:
    """Exponentials are summed as they are, and overflow."""
    x, dim = launch.args[0], launch.argument(1, "dim", -1)
    total = x.exp().sum(dim, keepdim=True)
    if launch.api == "softmax":
        return x.exp() / total
    return x - total.log() if launch.api == "log_softmax" else total.log().squeeze(dim)


@variant("group_norm")
def group_norm_over_channels(launch: Launch) -> Any:
    """Group norm normalizes each channel by itself."""
    return launch.run(launch.args[0], launch.args[0].shape[1])


@variant("interpolate")
def corners_aligned(launch: Launch) -> Any:
    """Interpolation aligns the corners."""
    return launch.run(align_corners=True)


@variant("avg_pool2d")
def pooling_divides_by_three(launch: Launch) -> Any:
    """Average pooling divides by one less than the window's size."""
    return launch.run() * (4 / 3)


@variant("mse_loss binary_cross_entropy_with_logits")
def loss_summed(launch: Launch) -> Any:
    """A mean loss is the sum."""
    return launch.run(reduction="sum")


@variant("maximum relu clamp")
def nan_lost_in_comparison(launch: Launch) -> Any:
    """Comparisons drop NaN: the other operand wins."""
    return overwrite(launch.run(), lambda values: values.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf))
