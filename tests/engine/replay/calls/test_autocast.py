"""Autocast is inferred from dtypes that occur together only there."""

from __future__ import annotations

import pytest
import torch

from msprobe_hooks.dump.schema import ForwardRecord, TensorElement
from pytest_msprobe.engine.replay.prepared_call import recorded_autocast

f16, bf16, f32, f64, i64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64


@pytest.mark.parametrize(
    ("inputs", "output", "autocast"),
    [
        ([f32, f32], f32, None),
        ([f16, f16], f16, None),
        ([f32, f32], bf16, bf16),
        ([f32, f32], f16, f16),
        ([f16, f32], f32, f16),
        ([bf16, f32], bf16, bf16),
        ([f16], f32, f16),
        ([f32], i64, None),
        ([i64], f32, None),
        ([f32, f64], f64, None),
        ([], f16, None),
    ],
)
def test_floats_of_several_widths_show_the_region(
    inputs: list[torch.dtype], output: torch.dtype, autocast: torch.dtype | None
) -> None:
    element = TensorElement(type="torch.Tensor", dtype=str(output), shape=(2,))
    record = ForwardRecord("Torch.mm.0.forward", [], {}, [element], {})
    assert recorded_autocast(record, inputs) is autocast


def test_a_record_without_outputs_is_reported_by_its_inputs() -> None:
    assert recorded_autocast(ForwardRecord("Torch.mm.0.forward", [], {}, [None], {}), [f32, f16]) is f16
    assert recorded_autocast(ForwardRecord("Torch.mm.0.forward", [], {}, [], {}), [f32]) is None
