"""Samples of torch_npu's operators: drawn, recorded by the golden definitions, and listed with a reason where not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.npu_operators.left_out import left_out
from pytest_msprobe.extensions.npu_operators.operator_samples import FILE, Arguments, operators
from pytest_msprobe.extensions.operators.database import NoSampleError, Operator
from pytest_msprobe.extensions.operators.recorder import record_operators
from tests.support.cann.examples import all_examples

FIFTH = 5


def named(name: str) -> Operator:
    return next(operator for operator in operators() if operator.name == f"torch_npu.{name}")


def test_every_operator_that_has_an_example_has_as_many_samples() -> None:
    samples = msgspec.json.decode(FILE.read_bytes(), type=dict[str, list[Arguments]])
    counts = {api.rpartition(".")[2]: len(each) for api, each in samples.items()}
    examples: dict[str, int] = {}
    for operator, _, _ in all_examples():
        examples[operator] = examples.get(operator, 0) + 1
    without = {name: count for name, count in examples.items() if counts.get(name) != count}
    # Their inputs are what a forward saved.
    assert without.keys() == {
        "npu_dropout_with_add_softmax_backward", "npu_gru_backward", "npu_mhc_pre_backward",
        "npu_multi_head_attention_backward",
    }  # fmt: skip


def test_a_sample_has_its_shapes_and_ranges_in_the_dtype_of_the_sweep() -> None:
    (first, *_) = named("npu_swiglu").draw(torch.bfloat16, 4)
    assert first.args[0].dtype == torch.bfloat16
    assert first.args[0].requires_grad
    half, brain = (named("npu_silu").draw(dtype, 1)[0].args[0] for dtype in (torch.float16, torch.bfloat16))
    assert (half.dtype, brain.dtype, half.shape) == (torch.float16, torch.bfloat16, brain.shape)


@pytest.mark.parametrize(
    ("name", "dtype", "reason"),
    [
        ("npu_mish", torch.float16, "its samples are in float32"),
        ("npu_quant_all_reduce", torch.float32, dict(left_out())["npu_quant_all_reduce"]),
        ("npu_gru_backward", torch.float32, "what its forward saved belongs together, and cannot be drawn"),
    ],
)
def test_an_operator_without_a_sample_says_why(name: str, dtype: torch.dtype, reason: str) -> None:
    with pytest.raises(NoSampleError) as raised:
        named(name).draw(dtype, 4)
    assert str(raised.value) == reason


def test_a_recording_has_the_operator_and_its_gradient_and_what_has_none(tmp_path: Path) -> None:
    chosen = [named(name) for name in ("npu_swiglu", "npu_mish", "npu_rms_norm")]
    sweep = record_operators(tmp_path, chosen, "float16", "tensor", 4)
    assert dict(sweep.left_out()) == {"torch_npu.npu_mish": "its samples are in float32"}
    dump = read_dump(next(tmp_path.rglob("dump.json")))
    names = {name.rpartition(".")[2] + name.rpartition(".")[0].rstrip("0123456789") for name in dump.records}
    assert names == {
        "forwardNPU.npu_swiglu.", "backwardNPU.npu_swiglu.", "forwardNPU.npu_rms_norm.", "backwardNPU.npu_rms_norm.",
    }  # fmt: skip
    # The definition's own dtype of what it saves is that of its input.
    norm = dump.forward("NPU.npu_rms_norm.0.forward")
    assert [output.dtype for output in norm.output] == ["torch.float16", "torch.float32"]


@pytest.mark.slow
def test_a_fifth_of_the_samples_is_drawn_and_computed(tmp_path: Path) -> None:
    sweep = record_operators(tmp_path, [*operators()][::FIFTH], "bfloat16", "tensor", 1)
    refused = {text for counts in sweep.operators.values() for text in counts.refused}
    reasons = {"no sample is known of it", *dict(left_out()).values()}
    known = ("its samples", "its gradients", "what its")
    assert [text for text in refused - reasons if not text.startswith(known)] == []
