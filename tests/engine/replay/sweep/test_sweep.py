"""Real APIs, recorded on a healthy CPU and replayed there: nearly all get a verdict and none an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.engine.replay.sweep.calls_in_few_dtypes import (
    bools,
    complexes,
    half_complexes,
    integers,
    narrow_floats,
    wide_integers,
)
from tests.engine.replay.sweep.calls_of_mathematics import decompositions, pointwise, products, reductions, spectra
from tests.engine.replay.sweep.calls_of_networks import activations, layers, losses, pooling, recurrent
from tests.engine.replay.sweep.calls_of_operators import aten
from tests.engine.replay.sweep.calls_of_tensors import casts, methods, no_elements, shapes
from tests.engine.replay.sweep.inputs import Draw

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = tuple(getattr(torch, name) for name in dir(torch) if name.startswith("float8") and "e8m0" not in name)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

SWEEPS: list[tuple[Callable[..., None], torch.dtype]] = [
    *(
        (family, dtype)
        for family in (activations, layers, pooling, losses, pointwise, reductions, products, shapes, casts, methods)
        for dtype in FLOATS
    ),
    *((family, dtype) for family in (aten, no_elements) for dtype in FLOATS),
    *((family, torch.float32) for family in (decompositions, spectra, recurrent)),
    *((integers, dtype) for dtype in INTEGERS),
    (bools, torch.bool),
    (complexes, torch.complex64),
    (complexes, torch.complex128),
    (half_complexes, torch.complex32),
    *((narrow_floats, dtype) for dtype in FLOAT8),
    *((wide_integers, dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64)),
]

# What a CPU cannot do for any recording: kernels that torch does not have.
SKIPPED_SHARE = 0.01


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("family", "dtype"), SWEEPS, ids=lambda value: getattr(value, "__name__", str(value)[6:]))
def test_a_healthy_cpu_gets_verdicts_and_no_alarm(
    recorder: Any, check: Any, family: Callable[..., None], dtype: torch.dtype, seed: int
) -> None:
    family(recorder, Draw(dtype))
    judged, skips, alarms = 0, Counter[str](), []
    for call in recorder.calls:
        result = check(call, seed=seed)
        for direction in filter(None, (result.forward, result.backward)):
            judged += 1
            if direction.verdict.outcome == "skip":
                skips[f"{direction.record}: {direction.verdict.reason}"] += 1
            elif direction.verdict.outcome != "pass":
                alarms.append(f"{direction.record}: {direction.verdict.outcome}: {direction.verdict.reason}")
    assert not alarms
    assert skips.total() <= SKIPPED_SHARE * judged, "\n".join(skips)


@pytest.mark.parametrize(("family", "dtype"), [sweep for sweep in SWEEPS if sweep[1] is torch.float32])
def test_one_wrong_element_is_found_in_any_result(
    recorder: Any, check: Any, device_that: Any, family: Callable[..., None], dtype: torch.dtype
) -> None:
    spoilt: list[str] = []

    def spoil(func: Any, args: Any, kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map_only(torch.Tensor, one_wrong_element, func(*args, **kwargs))

    def one_wrong_element(output: torch.Tensor) -> torch.Tensor:
        if not output.is_floating_point() or output.numel() == 0:
            return output
        spoilt.append("an output")
        wrong = output.detach().clone(memory_format=torch.contiguous_format)
        wrong.view(-1)[output.numel() // 2] += max(wrong.abs().max().item(), 1.0) * 0.06
        return wrong

    family(recorder, Draw(dtype))
    missed = []
    for call in recorder.calls:
        spoilt.clear()
        verdict = check(call, device=device_that(spoil)).forward.verdict
        if spoilt and verdict.outcome != "fail":
            missed.append(f"{call.name}: {verdict.outcome}: {verdict.reason}")
    assert not missed
