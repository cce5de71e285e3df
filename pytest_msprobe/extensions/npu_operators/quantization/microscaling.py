"""Blocks of numbers that share an exponent: MX quantization of the OCP Microscaling Formats specification.

A shared exponent e is stored in uint8 as e + 127 (E8M0). Along the quantized axis the exponents lie in pairs: those of
the blocks 2k and 2k + 1 are next to each other in a last dimension of two, and an odd one is followed by 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.values.number_formats import (
    BLOCK,
    E1M2,
    E2M1,
    FLOAT4S,
    FLOAT8S,
    NumberFormat,
    blocks_of_rows,
    format_among,
    store,
)
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Largest numbers with which scale_alg 2 compares the significand of the largest magnitude, and that significand.
_THRESHOLDS = {(E2M1, 0.0): 1.5, (E2M1, 6.0): 1.5, (E2M1, 7.0): 1.75, (E1M2, 1.875): 1.875}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How shared exponents are found, as the arguments of these names say, from the largest magnitude of a block.

    ``scale_alg`` 0 is floor(log2 amax) - emax, the specification's. 1 is log2(amax / largest) rounded up, so that
    nothing exceeds the format's largest number. 2 is the same with ``dst_type_max`` for the largest, except for some of
    these: for them it is 0, and one more where the significand of amax exceeds a threshold.
    """

    to: NumberFormat
    scale_alg: int = 0
    dst_type_max: float = 0.0
    max_low_bound: float = 0.0
    round_mode: str = "rint"
    block: int = BLOCK


def mx_scaling(
    api: str,
    dst_type: object,
    *,
    scale_alg: int | None = 0,
    dst_type_max: float | None = 0.0,
    max_low_bound: float = 0.0,
    round_mode: str | None = "rint",
    block: int = BLOCK,
) -> Scaling:
    """Return how an operator scales, of its own arguments.

    Raises NotImplementedError for a format that is no float of 4 or 8 bits, and a ``scale_alg`` that the format does
    not have.
    """
    to = format_among(api, "dst_type", dst_type, (E2M1, *FLOAT4S, *FLOAT8S))
    algorithm = scale_alg or 0
    is_known = algorithm in ((0, 2) if to in FLOAT4S else (0, 1))
    refuse(api, **{f"scale_alg_{algorithm}_for_{to.name}": None if is_known else algorithm})
    return Scaling(
        to=to,
        scale_alg=algorithm,
        dst_type_max=dst_type_max or 0.0,
        max_low_bound=max_low_bound,
        round_mode=round_mode or "rint",
        block=block,
    )


def shared_exponents(amax: Tensor, how: Scaling) -> Tensor:
    """Return the exponents (int64, at least -127) of blocks with these largest magnitudes; -127 for a block of zeros.

    A block that holds infinity or NaN has 128, that is 255 when stored. As CANN's own tests of its operators do.
    """
    largest = how.dst_type_max or how.to.largest
    if how.scale_alg == 0:
        exponents = floor_log2(amax) - how.to.emax
    elif how.scale_alg == 2 and (how.to, how.dst_type_max) in _THRESHOLDS:
        threshold = _THRESHOLDS[how.to, how.dst_type_max]
        # of which the device compares the bits of bfloat16
        narrow = amax.bfloat16().double()
        power = floor_log2(narrow)
        exponents = power + (torch.ldexp(narrow, -power) > threshold).long() - how.to.emax
    else:
        # a division in float32, as the device divides
        ratio = amax.clamp(min=how.max_low_bound).float() / largest
        power = floor_log2(ratio)
        exponents = power + (torch.ldexp(ratio.double(), -power) > 1).long()
    return exponents.masked_fill(amax == 0, -127).clamp(-127, 127).masked_fill(~amax.isfinite(), 128)


def floor_log2(values: Tensor) -> Tensor:
    """Return floor(log2 |values|), in int64; of zero something."""
    return torch.frexp(values.double()).exponent.long() - 1


def scaled(x: Tensor, exponents: Tensor) -> Tensor:
    """Return x / 2^exponents, 0 in a block that holds what is not finite."""
    return torch.ldexp(x, -exponents).masked_fill(exponents == 128, 0.0)


def mx_quantized(x: Tensor, axis: int, how: Scaling) -> tuple[Tensor, Tensor]:
    """Return (y, shared exponents in uint8) of x, by blocks along an axis; a last block may be short.

    The exponents have the shape of x with ceil(ceil(n / block) / 2) for n on the axis, and a last dimension of two.
    """
    along = x.detach().double().movedim(axis, -1)
    count = along.shape[-1]
    blocks = torch.unflatten(F.pad(along, (0, -count % how.block)), -1, (-1, how.block))
    exponents = shared_exponents(blocks.abs().amax(-1), how)
    values = scaled(blocks, exponents.unsqueeze(-1)).flatten(-2)[..., :count].movedim(-1, axis)
    return store(values, how.to, how.round_mode), _in_pairs(exponents, axis)


def _in_pairs(exponents: Tensor, axis: int) -> Tensor:
    """Return exponents, the blocks last, as they are stored, the pairs at an axis of the quantized tensor."""
    stored = (exponents + 127).to(torch.uint8)
    pairs = torch.unflatten(F.pad(stored, (0, stored.shape[-1] % 2)), -1, (-1, 2))
    return pairs.movedim(-2, axis if axis >= 0 else axis - 1)


def mx_quantized_rows(x: Tensor, ends: Sequence[int], how: Scaling) -> tuple[Tensor, Tensor]:
    """Return (y, shared exponents) of x (m, n) by blocks of rows, which begin anew in each group that ends at ``ends``.

    The exponents are (m // 64 + groups, n, 2). Those of group g, which begins at row s, lie from s // 64 + g on; what
    lies between groups is 0. Rows behind the last group become 0.
    """
    places = blocks_of_rows(x.shape[0], ends, how.block)
    count = 2 * (x.shape[0] // (2 * how.block) + len(ends))
    wide = x.detach().double()
    is_grouped = places >= 0
    where = places.clamp(min=0).unsqueeze(-1).expand_as(wide)
    magnitudes = wide.abs().masked_fill(~is_grouped.unsqueeze(-1), 0.0)
    amax = wide.new_zeros(count, x.shape[1]).scatter_reduce(0, where, magnitudes, "amax")
    exponents = shared_exponents(amax, how)
    values = scaled(wide, exponents.gather(0, where)).masked_fill(~is_grouped.unsqueeze(-1), 0.0)
    return store(values, how.to, how.round_mode), _in_pairs(exponents.T, 0)


def mx_numbers(values: Tensor, mxscale: Tensor, axis: int, block: int = BLOCK) -> Tensor:
    """Return values * 2^(mxscale - 127), in float64, for exponents in pairs along an axis."""
    along = values.double().movedim(axis, -1)
    pairs = mxscale.movedim(axis if axis >= 0 else axis - 1, -2).flatten(-2).long() - 127
    exponents = pairs.repeat_interleave(block, -1)[..., : along.shape[-1]]
    return torch.ldexp(along, exponents).movedim(-1, axis)
