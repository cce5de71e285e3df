"""Calls that are only listed, before a search: which another precision could change, and which run as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks.extensions.fix.run_plan import DRAWS, UNNAMED_LIBRARY, Fixed
from msprobe_hooks.extensions.fix.torch_mode import ListingMode
from msprobe_hooks.recording.session import observing


def listed(call: Callable[[], object]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the APIs of calls that are listed, and those that are left, with the reason."""
    reported: list[str] = []
    fixed = Fixed()
    with observing(ListingMode("float32", lambda name, number: reported.append(name), fixed).observers()):
        call()
    return reported, list(fixed.left)


X = torch.ones(3, 3).bfloat16()


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (lambda: F.dropout(X), [("Functional.dropout", DRAWS)]),
        (lambda: X.masked_select(X > 0), [("Tensor.masked_select", "its result is not known in advance")]),
        (lambda: torch.ops.aten.mm(X, X), [("torch.ops.aten.mm", UNNAMED_LIBRARY)]),
    ],
)
def test_a_call_that_cannot_be_raised_is_left_with_the_reason(call, left):
    reported, found = listed(call)
    assert found == left
    assert left[0][0] not in reported


@pytest.mark.parametrize(
    "call",
    [X.float, X.contiguous, X.t, lambda: X > 0, lambda: X.sum().item(), lambda: X.to("cpu"), lambda: torch.ones(3) * 2],
)
def test_nothing_is_said_of_a_call_that_another_precision_would_not_change(call):
    assert listed(call)[1] == []


def test_no_cast_is_listed():
    reported, _ = listed(lambda: (X.float(), X.to(torch.float64), X.type_as(torch.ones(1)), torch.mm(X, X).half()))
    assert reported == ["Torch.mm"]
