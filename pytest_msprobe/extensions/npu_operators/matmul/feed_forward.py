"""The feed-forward layer of a transformer, of one expert or of groups of rows with an expert each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.extensions.npu_operators.experts.expert_groups import group_sizes
from pytest_msprobe.extensions.npu_operators.layers.activation import npu_fast_gelu
from pytest_msprobe.extensions.npu_operators.matmul.packed_numbers import scale_and_offset
from pytest_msprobe.extensions.npu_operators.matmul.quantized_matmul import dequantized
from pytest_msprobe.extensions.npu_operators.matmul.scaled_products import scaled_product
from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_Layer = list["Tensor | None"]


_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {"fastgelu": npu_fast_gelu, "relu": F.relu, "silu": F.silu}


def npu_ffn(
    x: Tensor, weight1: Tensor, weight2: Tensor, activation: str,
    *, expert_tokens: Sequence[int] | None = None, expert_tokens_index: Sequence[int] | None = None,
    bias1: Tensor | None = None, bias2: Tensor | None = None, scale: Tensor | None = None,
    offset: Tensor | None = None, deq_scale1: Tensor | None = None, deq_scale2: Tensor | None = None,
    antiquant_scale1: Tensor | None = None, antiquant_scale2: Tensor | None = None,
    antiquant_offset1: Tensor | None = None, antiquant_offset2: Tensor | None = None,
    inner_precise: int | None = None, output_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Return activation(x @ weight1 + bias1) @ weight2 + bias2, for groups of rows where the parameters are per expert.

    ``expert_tokens`` are the groups' sizes, ``expert_tokens_index`` their ends. Weights of int8 count as
    (weight + antiquant_offset) * antiquant_scale. ``activation`` is fastgelu, relu or silu. Products of int8 are
    multiplied by ``deq_scale1``, activated, rounded to int8 as y * scale + offset, and multiplied by ``deq_scale2``;
    they are float16 where no ``output_dtype`` says otherwise, here in the precision in which they are computed.
    ``inner_precise`` chooses between ways to the same numbers.

    Raises NotImplementedError for another activation, whose formula the documentation leaves open.
    """
    refuse("npu_ffn", **{f"activation {activation}": None if activation in _BY_NAME else activation})
    between = (scale, offset)
    first: _Layer = [weight1, bias1, antiquant_scale1, antiquant_offset1, deq_scale1]
    second: _Layer = [weight2, bias2, antiquant_scale2, antiquant_offset2, deq_scale2]
    groups = expert_tokens if expert_tokens is not None else expert_tokens_index
    if groups is None:
        out = _layers(x, _BY_NAME[activation], first, second, *between)
    else:
        sizes = group_sizes("npu_ffn", groups, len(x), cumulative=expert_tokens is None)
        outs = []
        for expert, part in enumerate(torch.split(x, sizes)):
            one, two, (factor, shift) = (
                [None if each is None else each[expert] for each in layer] for layer in (first, second, between)
            )
            outs.append(_layers(part, _BY_NAME[activation], one, two, factor, shift))
        out = torch.cat(outs)
    return out if x.is_floating_point() or output_dtype is None else out.to(output_dtype)


def _layers(
    x: Tensor,
    activate: Callable[[Tensor], Tensor],
    first: _Layer,
    second: _Layer,
    scale: Tensor | None,
    offset: Tensor | None,
) -> Tensor:
    hidden = activate(_layer(x, *first))
    if scale is not None:
        scaled = hidden * scale.double()
        hidden = rounded(scaled if offset is None else scaled + offset.double())
    return _layer(hidden, *second)


def _layer(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    factor: Tensor | None,
    shift: Tensor | None,
    scale: Tensor | None,
) -> Tensor:
    """Return x @ weight + bias, with a quantized weight, or with both operands quantized and a scale behind."""
    matrix = torch.empty(0) if weight is None else weight
    if scale is not None:
        return scaled_product(x, matrix, scale_and_offset(scale)[0], bias=bias)
    product = x @ (matrix if factor is None else dequantized(matrix, factor, shift)).to(x.dtype)
    return product if bias is None else product + bias.to(x.dtype)
