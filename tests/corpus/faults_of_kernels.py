"""Defects of single operators: wrong order, index, operand, sign or range."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus.fault import Launch, exactly, overwrite, plain_name, substitute, variant


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


@variant("adaptive_avg_pool2d mean")
def mean_divides_by_one_less(launch: Launch) -> Any:
    """A mean over n elements divides by n - 1."""
    output = launch.run()
    count = launch.args[0].numel() // output.numel()
    return output if count < 2 else output * (count / (count - 1))


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
    """gelu uses the tanh approximation whatever its argument says."""
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


@variant("maximum relu clamp")
def nan_lost_in_comparison(launch: Launch) -> Any:
    """Comparisons drop NaN: the other operand wins."""
    return overwrite(launch.run(), lambda values: values.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf))
