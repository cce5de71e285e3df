"""Cards that are worse than the mode that they state, or that state none."""

from __future__ import annotations

from typing import Any

import torch

from tests.corpus.cards import CUT, Card, Round, card, to_bits
from tests.corpus.fault import Launch, Variant, overwrite

_TF32 = {"matmul": "tf32", "conv": "tf32", "rnn": "tf32"}
_HF32 = {"matmul": "hf32", "conv": "hf32", "rnn": "hf32"}


def _of_all(rounding: Round, sums: Round | None = None) -> Card:
    return Card(products=rounding, convolutions=rounding, sums=sums)


def _half(values: torch.Tensor) -> torch.Tensor:
    return values.half().float()


def _bfloat16(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().float()


def _zero_for_inf(launch: Launch) -> Any:
    return overwrite(launch.run(), lambda values: torch.where(values.isinf(), torch.zeros_like(values), values))


FAULTS_OF_MODES: tuple[Variant, ...] = (
    card(
        "unstated hf32 convolutions",
        "HF32 convolutions of a card that says nothing.",
        Card(convolutions=to_bits(11)).kernel,
    ),
    card(
        "unstated hf32 by truncation",
        "HF32 by truncation of a card that says nothing.",
        _of_all(to_bits(11, CUT)).kernel,
    ),
    card("unstated tf32", "TF32 of a card that says nothing.", _of_all(to_bits(10)).kernel),
    card(
        "tf32 products though only convolutions are stated",
        "TF32 products, and TF32 is stated of convolutions.",
        Card(products=to_bits(10)).kernel,
        conv="tf32",
    ),
    card(
        "tf32 less two bits", "Operands have two bits less than the stated TF32.", _of_all(to_bits(8)).kernel, **_TF32
    ),
    card(
        "hf32 less two bits", "Operands have two bits less than the stated HF32.", _of_all(to_bits(9)).kernel, **_HF32
    ),
    card(
        "tf32 less two bits by truncation",
        "Operands are cut off two bits before the stated TF32.",
        _of_all(to_bits(8, CUT)).kernel,
        **_TF32,
    ),
    card(
        "hf32 convolutions less two bits",
        "Convolutions have two bits less than the stated HF32.",
        Card(convolutions=to_bits(9)).kernel,
        conv="hf32",
    ),
    card(
        "bfloat16 operands under tf32",
        "Operands are rounded to bfloat16, and TF32 is stated.",
        _of_all(_bfloat16).kernel,
        **_TF32,
    ),
    card(
        "bfloat16 operands under hf32",
        "Operands are rounded to bfloat16, and HF32 is stated.",
        _of_all(_bfloat16).kernel,
        **_HF32,
    ),
    card(
        "bfloat16 gradients under tf32",
        "Only backward operands are rounded to bfloat16, and TF32 is stated.",
        Card(to_bits(10), to_bits(10), gradients=_bfloat16).kernel,
        **_TF32,
    ),
    card(
        "float16 accumulation under tf32",
        "Products are summed in float16, and TF32 is stated.",
        _of_all(to_bits(10), _half).kernel,
        **_TF32,
    ),
    card(
        "bfloat16 accumulation under tf32",
        "Products are summed in bfloat16, and TF32 is stated.",
        _of_all(to_bits(10), _bfloat16).kernel,
        **_TF32,
    ),
    card(
        "float16 results under tf32",
        "The sums of products are rounded to float16, and TF32 is stated.",
        Card(sums=_half, step=1 << 20).kernel,
        **_TF32,
    ),
    card(
        "zero for infinity under saturation",
        "What overflows is zero, and saturation is stated.",
        _zero_for_inf,
        apis="",
        saturation=True,
    ),
)
