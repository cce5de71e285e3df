"""What is kept of a tensor that may be freed before anybody asks for it."""

from __future__ import annotations

import torch

from msprobe_hooks.extensions.overflow.detector import State


def test_a_tensor_in_one_version_is_one_state() -> None:
    tensor = torch.zeros(2)
    assert {State(tensor, 0)} == {State(tensor, 0)}
    assert State(tensor, 0) != State(tensor, 1)
    assert State(tensor, 0).tensor() is tensor


def test_a_tensor_at_the_address_of_a_freed_one_is_another_state() -> None:
    tensor = torch.zeros(2)
    address, state = id(tensor), State(tensor, 0)
    del tensor
    assert state.tensor() is None
    kept = []
    for _ in range(10_000):
        tensor = torch.zeros(2)
        if id(tensor) == address:
            break
        kept.append(tensor)
    assert id(tensor) == address
    assert State(tensor, 0) != state
    assert State(tensor, 0) not in {state}
