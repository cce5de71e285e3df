"""The gated delta rule against an independent definition, and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.recurrent.gated_states import (
    npu_chunk_gated_delta_rule,
    npu_recurrent_gated_delta_rule,
)
from tests.support.cann.examples.delta_rule import EXAMPLES

ONE = torch.ones(1, 1, 1, dtype=torch.float64)
ALONE = torch.tensor([1])


def test_a_state_decays_then_moves_towards_the_value() -> None:
    state = torch.full((1, 1, 1, 1), 4.0, dtype=torch.float64)
    g, beta = torch.full((1, 1), math.log(0.5)), torch.full((1, 1), 0.25)
    out = npu_recurrent_gated_delta_rule(
        ONE, ONE, 6 * ONE, state, beta=beta, g=g, actual_seq_lengths=ALONE, ssm_state_indices=ALONE - 1
    )
    assert float(state) == pytest.approx(0.5 * 4 + 0.25 * (6 - 2))
    assert float(out) == pytest.approx(3)


def test_a_sequence_begins_with_the_state_of_the_last_accepted_token() -> None:
    state = torch.tensor([10.0, 20.0, 30.0], dtype=torch.float64).view(3, 1, 1, 1)
    tokens, zero = ONE.expand(2, 1, 1), torch.zeros(2, 1)
    out = npu_recurrent_gated_delta_rule(
        tokens, tokens, tokens, state, beta=zero, actual_seq_lengths=torch.tensor([2]),
        ssm_state_indices=torch.tensor([0, 2]), num_accepted_tokens=torch.tensor([2]),
    )  # fmt: skip
    assert out.flatten().tolist() == [30, 30]
    assert state.flatten().tolist() == [30, 20, 30]


def test_chunks_and_single_tokens_give_the_same() -> None:
    call = EXAMPLES["npu_chunk_gated_delta_rule"](torch.Generator().manual_seed(3))
    query, key, value = (each.double() for each in call.args)
    options = {
        name: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for name, x in call.kwargs.items()
    }
    initial = options.pop("initial_state")
    out, last = npu_chunk_gated_delta_rule(query, key, value, initial_state=initial, **options)
    # every token of a sequence leaves its state in the sequence's own slot
    slots = torch.arange(2).repeat_interleave(options["actual_seq_lengths"])
    expected = npu_recurrent_gated_delta_rule(query, key, value, initial, ssm_state_indices=slots, **options)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(last, initial)


def test_gradients_of_chunks_are_those_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(2)
    leaves = [torch.rand(shape, generator=generator, dtype=torch.float64) for shape in ((3, 1, 2),) * 3]
    options = {
        "actual_seq_lengths": torch.tensor([2, 1]),
        "g": torch.full((3, 1), -0.5),
        "beta": torch.full((3, 1), 0.5),
    }
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(
        lambda q, k, v: npu_chunk_gated_delta_rule(q, k, v, **options)[0], leaves, fast_mode=True
    )


def test_what_the_rule_does_not_know_is_refused_by_name() -> None:
    state = torch.zeros(1, 1, 1, 1)
    with pytest.raises(NotImplementedError, match="gk"):
        npu_recurrent_gated_delta_rule(ONE, ONE, ONE, state, gk=ONE)
    with pytest.raises(ValueError, match="actual_seq_lengths"):
        npu_recurrent_gated_delta_rule(ONE, ONE, ONE, state)
    with pytest.raises(ValueError, match="actual_seq_lengths"):
        npu_chunk_gated_delta_rule(ONE, ONE, ONE)
