"""Matrix products of groups of rows, each with the weight of its expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.references.experts.expert_groups import group_sizes
from pytest_msprobe.engine.replay.references.layers.activation import npu_fast_gelu
from pytest_msprobe.engine.replay.references.quantization.quantized_matmul import npu_quant_matmul
from pytest_msprobe.engine.replay.references.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _nothing(x: Tensor) -> Tensor:
    return x


_BY_ACT_TYPE: dict[int, Callable[[Tensor], Tensor]] = {
    0: _nothing, 1: F.relu, 2: _gelu_tanh, 4: npu_fast_gelu, 5: F.silu,
}  # fmt: skip
_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {"fastgelu": npu_fast_gelu, "relu": F.relu, "silu": F.silu}


def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    *,
    bias: Sequence[Tensor] | None = None,
    scale: Sequence[Tensor] | None = None,
    offset: Sequence[Tensor] | None = None,
    antiquant_scale: Sequence[Tensor] | None = None,
    antiquant_offset: Sequence[Tensor] | None = None,
    per_token_scale: Sequence[Tensor] | None = None,
    group_list: Tensor | Sequence[int] | None = None,
    activation_input: Sequence[Tensor] | None = None,
    activation_quant_scale: Sequence[Tensor] | None = None,
    activation_quant_offset: Sequence[Tensor] | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    act_type: int | None = 0,
    output_dtype: torch.dtype | None = None,
    tuning_config: Sequence[int] | None = None,
) -> list[Tensor]:
    """Return [act(x_i @ weight_i + bias_i)], joined to one tensor where ``split_item`` is 2 or 3.

    ``weight`` is one tensor per group, or one (groups, k, n). So is ``x``, or one (rows, k) whose groups of rows
    ``group_list`` says, by their ends or, with ``group_list_type`` 1, by their sizes. A weight of int8 counts as
    (weight + antiquant_offset) * antiquant_scale. ``act_type`` is 0 none, 1 ReLU, 2 GELU (tanh), 4 fast GELU, 5 SiLU.

    For x of int8 the product is (x_i @ weight_i + bias_i) * scale_i * per_token_scale, with a float bias added at the
    end, in ``output_dtype``, a float.

    Raises NotImplementedError for a packed (int64) ``scale``, a result of int8, ``offset``, ``activation_*``, groups of
    another dimension than rows (``group_type``), ``group_list_type`` 2 and ``act_type`` 3, and ValueError where the
    groups have more than the rows. Rows behind the last group are zero here and not defined on the device.
    """
    api = "npu_grouped_matmul"
    refuse(
        api,
        packed_scale=scale if scale and not scale[0].is_floating_point() else None,
        result_of_int8=True if scale and output_dtype in (None, torch.int8, torch.int32) else None,
        offset=offset or None,
        activation_input=activation_input or None,
        activation_quant_scale=activation_quant_scale or None,
        activation_quant_offset=activation_quant_offset or None,
        group_type=None if group_type in (None, -1, 0) else group_type,
        group_list_type=None if group_list_type in (None, 0, 1) else group_list_type,
        act_type=None if (act_type or 0) in _BY_ACT_TYPE else act_type,
    )
    weights = _of_each_group(weight, 3)
    rows = list(x)
    if len(x) == 1 and len(weights) > 1:
        if group_list is None:
            raise ValueError(f"{api} needs group_list for one x and {len(weights)} weights")
        sizes = group_sizes(api, group_list, len(x[0]), cumulative=group_list_type != 1)
        rows = list(torch.split(x[0][: sum(sizes)], sizes))
    biases = _each_or_none(bias, len(weights))
    if scale:
        products = _of_int8(rows, weights, biases, _of_each_group(scale, 2), per_token_scale)
    else:
        factors, shifts = (_each_or_none(each, len(weights)) for each in (antiquant_scale, antiquant_offset))
        layers = zip(rows, weights, biases, factors, shifts, strict=True)
        products = [_layer(*layer) for layer in layers]
    outs = [_BY_ACT_TYPE[act_type or 0](product) for product in products]
    if split_item in (2, 3):
        behind = sum(map(len, x)) - sum(map(len, outs))
        outs = [torch.cat([*outs, outs[0].new_zeros(behind, outs[0].shape[-1])] if behind else outs)]
    return outs if output_dtype is None else [out.to(output_dtype) for out in outs]


def _of_int8(
    rows: list[Tensor],
    weights: list[Tensor],
    biases: Sequence[Tensor | None],
    scales: list[Tensor],
    token_scales: Sequence[Tensor] | None,
) -> list[Tensor]:
    """Return the scaled products of groups of int8, in float64."""
    tokens: Sequence[Tensor | None] = [None] * len(rows)
    if token_scales:
        sizes = [len(part) for part in rows]
        tokens = torch.split(torch.cat(list(token_scales))[: sum(sizes)], sizes)
    return [
        npu_quant_matmul(part, weight, scale, pertoken_scale=token, bias=bias, output_dtype=torch.float64)
        for part, weight, scale, token, bias in zip(rows, weights, scales, tokens, biases, strict=True)
    ]


def npu_ffn(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    activation: str,
    *,
    expert_tokens: Sequence[int] | None = None,
    expert_tokens_index: Sequence[int] | None = None,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    deq_scale1: Tensor | None = None,
    deq_scale2: Tensor | None = None,
    antiquant_scale1: Tensor | None = None,
    antiquant_scale2: Tensor | None = None,
    antiquant_offset1: Tensor | None = None,
    antiquant_offset2: Tensor | None = None,
    inner_precise: int | None = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return activation(x @ weight1 + bias1) @ weight2 + bias2, for groups of rows where the parameters are per expert.

    ``expert_tokens`` are the groups' sizes, ``expert_tokens_index`` their ends. Weights of int8 count as
    (weight + antiquant_offset) * antiquant_scale. ``activation`` is fastgelu, relu or silu. Raises NotImplementedError
    for another one, whose formula the documentation leaves open, and for products of int8 (``scale``, ``offset``,
    ``deq_scale1``, ``deq_scale2``).
    """
    refuse("npu_ffn", scale=scale, offset=offset, deq_scale1=deq_scale1, deq_scale2=deq_scale2)
    refuse("npu_ffn", **{f"activation {activation}": None if activation in _BY_NAME else activation})
    activate = _BY_NAME[activation]
    first = (weight1, bias1, antiquant_scale1, antiquant_offset1)
    second = (weight2, bias2, antiquant_scale2, antiquant_offset2)
    groups = expert_tokens if expert_tokens is not None else expert_tokens_index
    if groups is None:
        return _layer(activate(_layer(x, *first)), *second)
    sizes = group_sizes("npu_ffn", groups, len(x), cumulative=expert_tokens is None)
    outs = []
    for expert, part in enumerate(torch.split(x, sizes)):
        one, two = ([None if each is None else each[expert] for each in layer] for layer in (first, second))
        outs.append(_layer(activate(_layer(part, *one)), *two))  # type: ignore[arg-type]
    return torch.cat(outs)


def _layer(x: Tensor, weight: Tensor, bias: Tensor | None, factor: Tensor | None, shift: Tensor | None) -> Tensor:
    return _affine(x, _dequantized(weight, factor, shift), bias)


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x @ weight.to(x.dtype)
    return product if bias is None else product + bias.to(x.dtype)


def _dequantized(weight: Tensor, factor: Tensor | None, shift: Tensor | None) -> Tensor:
    if factor is None:
        return weight
    shifted = weight.to(factor.dtype)
    return (shifted if shift is None else shifted + shift) * factor


def _each_or_none(tensors: Sequence[Tensor] | None, groups: int) -> Sequence[Tensor | None]:
    return _of_each_group(tensors, 2) if tensors else [None] * groups


def _of_each_group(tensors: Sequence[Tensor], dims: int) -> list[Tensor]:
    """Return what each group has, of one tensor that has ``dims`` dimensions where it holds that of all."""
    return list(tensors[0]) if len(tensors) == 1 and tensors[0].dim() == dims else list(tensors)
