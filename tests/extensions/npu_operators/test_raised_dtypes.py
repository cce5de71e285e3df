"""Precision in which the golden definitions of NPU operators compute."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.golden import golden_side


def test_the_few_bits_that_a_quantizing_operator_is_asked_for_stay() -> None:
    arguments = Arguments((), {"dst_type": torch.float8_e4m3fn, "output_dtype": torch.bfloat16}, frozenset())
    side = golden_side("npu_dynamic_quant", arguments)
    assert side.dtype(torch.float8_e4m3fn) is torch.float8_e4m3fn
    assert side.dtype(torch.bfloat16) is torch.float32
    assert golden_side("to", arguments).dtype(torch.float8_e4m3fn) is torch.float32
