"""Records of caches and inference attention: inputs drawn from statistics, on devices that compute well and badly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.support.cann.examples import caches, inference_attention
from tests.support.dumps.recorder import Recorder

# Every operator, and the modes whose inputs have to fit each other.
EXAMPLES = {
    name: make
    for name, make in {**caches.EXAMPLES, **inference_attention.EXAMPLES}.items()
    if "-" not in name
    or any(mode in name for mode in ("blocks of N", "BLK_NZ", "mean", "offsets", "spec", "NTD_TND", "Norm"))
}


def recorded(recorder: Recorder, example: str) -> Any:
    call = EXAMPLES[example](torch.Generator().manual_seed(1))
    return recorder.record("NPU", example.partition("-")[0], call.args, call.kwargs)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_correct_device_passes(example: str, recorder: Recorder, check: Any) -> None:
    result = check(recorded(recorder, example), device=SimDevice())
    assert result.forward.outcome == "pass", result.forward.reason


def one_row_for_another(func: Any, args: Any, kwargs: Any) -> Any:
    """Give results, and leave what was written to, with their rows in another order."""
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    before = [leaf.clone() for leaf in given]
    result = func(*args, **kwargs)
    for leaf, kept in zip(given, before, strict=True):
        if not leaf.equal(kept):
            leaf.copy_(leaf.roll(1, leaf.shape.index(max(leaf.shape))))
    places = {leaf.data_ptr() for leaf in given}
    return map_tensors(lambda found: found if found.data_ptr() in places else found.flip(0), result)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_device_that_mistakes_rows_is_found(example: str, recorder: Recorder, check: Any, device_that: Any) -> None:
    result = check(recorded(recorder, example), device=device_that(one_row_for_another))
    assert result.forward.outcome == "fail"
