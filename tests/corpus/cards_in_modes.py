"""Cards that compute with fewer bits and say so: none of them may raise an alarm."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.replay.calls.side import gradients_of
from tests.corpus.cards import AWAY, CUT, Card, card, to_bits
from tests.corpus.fault import Launch, Variant, overwrite
from tests.corpus.kernels import product

_TF32 = {"matmul": "tf32", "conv": "tf32", "rnn": "tf32"}
_HF32 = {"matmul": "hf32", "conv": "hf32", "rnn": "hf32"}
_BF16 = {"matmul": "bf16", "conv": "bf16", "rnn": "bf16"}


def _saturating(launch: Launch) -> Any:
    def finite(values: torch.Tensor) -> torch.Tensor:
        info = torch.finfo(values.dtype)
        return values.clamp(info.min, info.max)

    return overwrite(launch.run(), finite)


def _split(launch: Launch) -> Any:
    """Run products of narrow formats in two parts of the inner dimension, each rounded, and the sum once more."""

    def halves(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        middle = (left.shape[-1] + 1) // 2
        parts = ((left[..., :middle], right[..., :middle, :]), (left[..., middle:], right[..., middle:, :]))
        return sum(((a @ b).float() for a, b in parts), torch.zeros(()))

    if launch.func is gradients_of or launch.api not in ("linear", "matmul", "bmm", "addmm"):
        return launch.run()
    return product(launch, halves) if launch.args[0].dtype in (torch.float16, torch.bfloat16) else launch.run()


def _of_all(bits: int, whole: Any = torch.round) -> Card:
    return Card(products=to_bits(bits, whole), convolutions=to_bits(bits, whole))


CARDS_IN_MODES: tuple[Variant, ...] = (
    card(
        "hf32 convolutions",
        "Convolutions round their operands to HF32.",
        Card(convolutions=to_bits(11)).kernel,
        conv="hf32",
    ),
    card(
        "tf32 convolutions",
        "Convolutions round their operands to TF32.",
        Card(convolutions=to_bits(10)).kernel,
        conv="tf32",
    ),
    card("hf32", "Products and convolutions round to HF32, halves away from zero.", _of_all(11, AWAY).kernel, **_HF32),
    card("tf32", "Products and convolutions round their operands to TF32.", _of_all(10).kernel, **_TF32),
    card("hf32 by truncation", "Operands are cut off to HF32.", _of_all(11, CUT).kernel, **_HF32),
    card("tf32 by truncation", "Operands are cut off to TF32.", _of_all(10, CUT).kernel, **_TF32),
    card("bfloat16 operands", "Operands are rounded to bfloat16.", _of_all(7).kernel, **_BF16),
    card(
        "tf32 that sums otherwise",
        "TF32, and sums of products are added in blocks.",
        Card(products=to_bits(10), convolutions=to_bits(10), sums=torch.clone).kernel,
        **_TF32,
    ),
    card("float32 under tf32", "A card that may use TF32 and does not.", Card().kernel, **_TF32),
    card(
        "reduced reductions",
        "Halves of a sum are rounded to float16 or bfloat16.",
        _split,
        fp16_reduction=True,
        bf16_reduction=True,
    ),
    card("saturating", "What overflows is the greatest finite value.", _saturating, apis="", saturation=True),
)
