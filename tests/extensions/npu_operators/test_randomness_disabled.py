"""An NPU's attention with dropout is run a second time without, and judged like any other call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.replays.at_rest import OffAtRest, assert_judged_whole, assert_wrong_at_rest

ELEMENT = {
    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 4, 12, 16],
    "Max": 2.0, "Min": -2.0, "Mean": 0.0, "Norm": 39.0, "requires_grad": True,
}  # fmt: skip


def plain(value: float | str) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


@pytest.fixture
def attention(recorder: Any) -> Any:
    return recorder.keep(
        "NPU.npu_fusion_attention.0",
        {
            "input_args": [*[ELEMENT] * 3, plain(4), plain("BNSD")],
            "input_kwargs": {"scale": plain(0.25), "keep_prob": plain(0.7)},
        },
        {"input": [ELEMENT], "output": []},
    )


def test_it_is_judged_whole_in_both_directions(attention: Any, check: Any) -> None:
    assert_judged_whole(check(attention))


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_random_properties_cannot_see_fails(direction: str, attention: Any, check: Any) -> None:
    assert_wrong_at_rest(getattr(check(attention, device=OffAtRest(direction)), direction), "keep_prob=1")
