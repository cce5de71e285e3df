"""Defects in which the right numbers land in the wrong place, or are read from one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.corpus.fault import Launch, overwrite, substitute, variant
from tests.corpus.kernels import convolution


def _contiguous_read(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """Return what a kernel reads that takes a tensor for a contiguous one at an offset of its storage."""
    memory = tensor.detach()
    needed = offset + tensor.numel()
    if memory.untyped_storage().nbytes() < needed * memory.element_size():
        return tensor
    strides = torch.empty(tensor.shape, device="meta").stride()
    return substitute(tensor, memory.as_strided(tensor.shape, strides, offset))


_READERS = "softmax sum mean layer_norm clone contiguous tanh sigmoid gelu relu cat mul add exp"


@variant(_READERS)
def strided_input_read_in_order(launch: Launch) -> Any:
    """The first argument's memory is read in order, whatever its strides."""
    x = launch.args[0]
    return launch.run(_contiguous_read(x, x.storage_offset())) if isinstance(x, torch.Tensor) else launch.run()


@variant(_READERS)
def storage_offset_ignored(launch: Launch) -> Any:
    """The first argument is read from the beginning of its storage."""
    x = launch.args[0]
    if not isinstance(x, torch.Tensor) or not x.storage_offset() or not x.is_contiguous():
        return launch.run()
    return launch.run(_contiguous_read(x, 0))


@variant("pixel_shuffle")
def pixel_shuffle_with_channels_last_in_blocks(launch: Launch) -> Any:
    """Pixel shuffle takes the factors before the channels."""
    x, factor = launch.args[0], launch.argument(1, "upscale_factor")
    channels = x.shape[-3] // factor**2
    regrouped = x.unflatten(-3, (factor**2, channels)).transpose(-3, -4).flatten(-4, -3)
    return launch.run(regrouped)


@variant("roll")
def rolled_the_other_way(launch: Launch) -> Any:
    """Elements are rolled toward the beginning."""
    shifts = launch.argument(1, "shifts")
    other = -shifts if isinstance(shifts, int) else [-shift for shift in shifts]
    return torch.roll(launch.args[0], other, launch.argument(2, "dims", ()))


@variant("adaptive_avg_pool2d")
def adaptive_windows_of_one_size(launch: Launch) -> Any:
    """Adaptive pooling takes windows of one size at equal steps."""
    x, size = launch.args[0], launch.argument(1, "output_size")
    height, width = (size, size) if isinstance(size, int) else size
    steps = [x.shape[-2] // height, x.shape[-1] // width]
    return F.avg_pool2d(x, steps, steps)[..., :height, :width]


@variant("interpolate")
def nearest_rounds(launch: Launch) -> Any:
    """Nearest neighbours are found by rounding in place of cutting."""
    x, scale = launch.args[0], launch.argument(2, "scale_factor")
    if launch.argument(3, "mode", "nearest") != "nearest" or scale is None:
        return launch.run()
    for dim in (-2, -1):
        places = (torch.arange(int(x.shape[dim] * scale)) / scale).add(0.5).floor().long().clamp(max=x.shape[dim] - 1)
        x = x.index_select(dim, places)
    return x


@variant("grid_sample")
def grid_corners_aligned(launch: Launch) -> Any:
    """The grid's ends are the centres of the outer pixels."""
    return launch.run(align_corners=True)


@variant("fold")
def folded_blocks_overwrite(launch: Launch) -> Any:
    """Where blocks overlap, the last one counts alone."""
    ones = torch.ones_like(launch.args[0])
    return launch.run() / launch.run(ones).clamp(min=1)


@variant("prelu")
def slope_of_the_first_channel(launch: Launch) -> Any:
    """All channels have the slope of the first one."""
    weight = launch.args[1]
    return launch.run(launch.args[0], weight[:1].expand_as(weight))


@variant("conv2d")
def groups_share_the_first_weight(launch: Launch) -> Any:
    """Each group is convolved with the weights of the first one."""
    conv = convolution(launch)
    if conv.groups == 1:
        return launch.run()
    first = conv.weight[: conv.weight.shape[0] // conv.groups]
    return launch.run(conv.x, first.repeat(conv.groups, 1, 1, 1))


@variant("conv2d")
def same_padding_on_the_other_side(launch: Launch) -> Any:
    """Padding "same" puts the odd element before the input."""
    if launch.argument(4, "padding") != "same":
        return launch.run()
    x, weight = launch.args[0], launch.argument(1, "weight")
    odd = [(size - 1) % 2 for size in weight.shape[-2:]]
    return launch.run(F.pad(x, [odd[1], 0, odd[0], 0]))[..., : x.shape[-2], : x.shape[-1]]


@variant("group_norm")
def group_norm_with_strided_groups(launch: Launch) -> Any:
    """Every n-th channel is a group."""
    x, groups = launch.args[0], launch.argument(1, "num_groups")
    weight, bias = launch.argument(2, "weight"), launch.argument(3, "bias")
    mixed = x.unflatten(1, (-1, groups)).transpose(1, 2).flatten(1, 2)
    normal = F.group_norm(mixed, groups, None, None, launch.argument(4, "eps", 1e-5))
    normal = normal.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
    spread = [1, -1, *(1 for _ in x.shape[2:])]
    return normal * weight.view(spread) + bias.view(spread)


@variant("var std")
def variance_of_the_last_axis_alone(launch: Launch) -> Any:
    """Of several axes only the last one's mean is taken out."""
    x, dims = launch.args[0], launch.argument(1, "dim")
    if not isinstance(dims, (list, tuple)) or len(dims) < 2:
        return launch.run()
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    squares = (x - x.mean(dims[-1], keepdim=True)).square().sum(list(dims)) / (count - 1)
    return squares.sqrt() if launch.api.endswith("std") else squares


@variant("scatter_reduce")
def scatter_reduce_forgets_its_place(launch: Launch) -> Any:
    """What was in the place before is not part of the reduction."""
    return launch.run(include_self=False)


@variant("sort argsort")
def stable_ties_reversed(launch: Launch) -> Any:
    """Equal values of a stable sort come last to first."""
    if not launch.kwargs.get("stable"):
        return launch.run()
    x, dim = launch.args[0], launch.argument(1, "dim", -1)
    dim = dim if isinstance(dim, int) and not isinstance(dim, bool) else launch.kwargs.get("dim", -1)
    order = x.shape[dim] - 1 - x.flip(dim).argsort(dim=dim, stable=True)
    return order if launch.api.endswith("argsort") else (x.gather(dim, order), order)


@variant("scaled_dot_product_attention")
def causal_mask_from_the_last_key(launch: Launch) -> Any:
    """The last query sees all keys where there are more keys than queries."""
    query, key = launch.args[:2]
    if not launch.argument(5, "is_causal", False) or query.shape[-2] == key.shape[-2]:
        return launch.run()
    visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(key.shape[-2] - query.shape[-2])
    return launch.run(is_causal=False, attn_mask=visible)


@variant("scaled_dot_product_attention")
def last_block_of_keys_lost(launch: Launch) -> Any:
    """Keys behind the last whole block of 16 are not seen."""
    query, key, value = launch.args[:3]
    whole = key.shape[-2] // 16 * 16
    if whole in (0, key.shape[-2]) or launch.argument(3, "attn_mask") is not None:
        return launch.run()
    return launch.run(query, key[..., :whole, :], value[..., :whole, :])


@variant("dropout2d")
def channel_dropout_of_elements(launch: Launch) -> Any:
    """Elements are dropped in place of channels."""
    return F.dropout(launch.args[0], launch.argument(1, "p", 0.5), launch.argument(2, "training", True))


@variant("foreach_mul")
def lists_share_the_first_scalar(launch: Launch) -> Any:
    """All tensors of a list are multiplied by the first scalar."""
    scalars = launch.args[1]
    if not isinstance(scalars, (list, tuple)):
        return launch.run()
    return launch.run(launch.args[0], [scalars[0]] * len(scalars))


@variant("matmul linear mm")
def one_of_four_parts_of_the_sum_lost(launch: Launch) -> Any:
    """The inner dimension is summed in four parts, and one is left out."""
    x = launch.args[0]
    quarter = x.shape[-1] // 4
    kept = torch.ones(x.shape[-1], dtype=x.dtype)
    kept[quarter : 2 * quarter] = 0
    return launch.run(x * kept)


@variant("matmul linear mm")
def tail_of_the_sum_dropped(launch: Launch) -> Any:
    """What is behind the last whole block of 32 of the inner dimension is left out."""
    x = launch.args[0]
    kept = torch.ones(x.shape[-1], dtype=x.dtype)
    kept[x.shape[-1] // 32 * 32 or x.shape[-1] :] = 0
    return launch.run(x * kept)


@variant("softmax log_softmax")
def padding_of_a_row_counts(launch: Launch) -> Any:
    """Rows are filled up to a multiple of 16 with zeros that count."""
    x, dim = launch.args[0], launch.argument(1, "dim", -1)
    if dim not in (-1, x.dim() - 1) or x.shape[-1] % 16 == 0:
        return launch.run()
    return launch.run(F.pad(x, [0, -x.shape[-1] % 16]))[..., : x.shape[-1]]


@variant("normal randn uniform rand")
def numbers_repeat_after_512(launch: Launch) -> Any:
    """Random numbers repeat after 512 elements."""

    def repeated(drawn: torch.Tensor) -> torch.Tensor:
        return drawn.flatten()[:512].repeat(-(-drawn.numel() // 512))[: drawn.numel()].view(drawn.shape)

    return overwrite(launch.run(), repeated)


@variant("bernoulli")
def bernoulli_in_pairs(launch: Launch) -> Any:
    """Neighbours are drawn together."""

    def paired(drawn: torch.Tensor) -> torch.Tensor:
        return drawn.flatten()[::2].repeat_interleave(2)[: drawn.numel()].view(drawn.shape)

    return overwrite(launch.run(), paired)


@variant("bernoulli")
def bernoulli_of_the_complement(launch: Launch) -> Any:
    """Ones are drawn with the probability of zeros."""
    return overwrite(launch.run(), lambda drawn: 1 - drawn)


@variant("multinomial")
def weights_of_a_multinomial_ignored(launch: Launch) -> Any:
    """All categories are drawn alike."""
    return launch.run(torch.ones_like(launch.args[0]))


@variant("dropout")
def dropout_draws_the_same_mask_each_time(launch: Launch) -> Any:
    """The counter of the generator does not move on."""
    state = torch.get_rng_state()
    torch.manual_seed(1)
    try:
        return launch.run()
    finally:
        torch.set_rng_state(state)
