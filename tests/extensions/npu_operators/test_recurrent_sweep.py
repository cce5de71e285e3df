"""Records of recurrent and legacy operators, inputs drawn from statistics, on devices that compute well and badly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.support.cann.examples import (
    causal_conv,
    delta_rule,
    drawn,
    hyper_connections,
    legacy_attention,
    legacy_layers,
    recurrent,
)
from tests.support.dumps.recorder import Recorder, element

FAMILIES = (causal_conv, delta_rule, hyper_connections, legacy_attention, legacy_layers, recurrent)
EXAMPLES = {name: example for family in (*FAMILIES, drawn) for name, example in family.EXAMPLES.items()}
# one of each operator, with results that are not written into an argument
EACH = [
    name for family in FAMILIES for name in family.EXAMPLES if "-" not in name and name != "npu_fused_causal_conv1d_v2"
]


def recorded(recorder: Recorder, name: str) -> Any:
    call, api = EXAMPLES[name](torch.Generator().manual_seed(5)), name.partition("-")[0]

    def trained(tensor: Tensor) -> Tensor:
        return tensor.requires_grad_(call.differentiate and tensor.is_floating_point())

    args, kwargs = map_tensors(trained, (call.args, call.kwargs))
    if ReferenceRegistry().get(f"NPU.{api}") is not None:
        return recorder.NPU[api](*args, **kwargs)
    golden = ReferenceRegistry().get(f"Aten.{api}")
    assert golden is not None
    results = golden(*args, **kwargs)
    output = element(results if isinstance(results, tuple) else [results])
    return recorder.keep(
        f"Aten.{api}.0", {"input_args": element(args), "input_kwargs": element(kwargs), "output": output}
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_correct_device_passes(name: str, recorder: Recorder, check: Any) -> None:
    made = recorded(recorder, name)
    result = check(made, device=SimDevice(), seed=1)
    assert result.forward.outcome == "pass", result.forward.reason
    if made.backward is not None:
        assert result.backward.outcome == "pass", result.backward.reason


@pytest.mark.parametrize("name", EACH)
def test_a_device_that_is_off_in_one_place_is_found(
    name: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        def off(tensor: Tensor) -> Tensor:
            if tensor.is_floating_point():
                tensor.view(-1)[0] += 0.1 + tensor.view(-1)[0].abs() / 4
            return tensor

        return map_tensors(off, func(*args, **kwargs))

    assert check(recorded(recorder, name), device=device_that(alter)).forward.outcome == "fail"


def test_what_is_written_into_an_argument_is_judged(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        args[2][0] *= 1.5
        return result

    for name in ("npu_fused_causal_conv1d_v2", "npu_fused_causal_conv1d"):
        assert check(recorded(recorder, name), device=device_that(alter)).forward.outcome == "fail"
