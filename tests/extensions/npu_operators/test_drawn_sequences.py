"""Drawn arguments of recurrent operators are ones that the operators promise something for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.extensions.npu_operators.inputs import sequences
from pytest_msprobe.extensions.npu_operators.recurrent.gated_states import saved_gru_results
from pytest_msprobe.extensions.npu_operators.recurrent.lstm import saved_lstm_data_results, saved_lstm_results
from tests.support.cann.examples.recurrent import EXAMPLES


def drawn(*args: Any, **kwargs: Any) -> DrawnArguments:
    return DrawnArguments(args, kwargs, 0)


def whole(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def test_tokens_are_shared_out_among_sequences_with_states_of_their_own() -> None:
    lengths, places, accepted = whole(9, 9, 9), whole(*[7] * 7), whole(-2, 5, 0)
    tokens = [torch.zeros(7, 2, 4)] * 3
    sequences.delta_rule(
        drawn(
            *tokens,
            torch.zeros(8, 2, 4, 4),
            actual_seq_lengths=lengths,
            ssm_state_indices=places,
            num_accepted_tokens=accepted,
        )
    )
    assert int(lengths.sum()) == 7
    assert len(set(places.tolist())) == 7
    assert bool(((accepted >= 1) & (accepted <= lengths)).all())


def test_a_cache_has_a_slot_for_each_sequence_and_the_tokens_that_are_accepted() -> None:
    starts, slots, accepted = whole(5, 1, 9), whole(3, 3), whole(0, 40)
    block = whole(4, 4)
    sequences.cached(
        drawn(
            torch.zeros(9, 4),
            torch.zeros(3, 4),
            torch.zeros(6, 4, 4),
            query_start_loc=starts,
            cache_indices=slots,
            num_accepted_tokens=accepted,
            num_computed_tokens=whole(-3, 2),
            initial_state_idx=block,
        )
    )
    assert starts.tolist() == [0, 5, 9]
    assert len(set(slots.tolist())) == 2
    assert accepted.tolist() == [1, 3]
    assert block.tolist() == [0, 0]


def test_a_mask_is_that_of_the_sequences_that_have_each_step() -> None:
    sizes, mask = whole(1, 9, 2), torch.rand(3, 4, 2)
    sequences.padded_by_sizes(drawn(torch.zeros(3, 4, 5), sizes, None, None, mask))
    assert sizes.tolist() == [4, 2, 1]
    assert mask[..., 0].sum(1).tolist() == [4, 2, 1]
    sequences.padded(drawn(None, None, None, mask))
    assert mask[0].all()
    assert mask.unique().tolist() == [0, 1]


def test_saved_results_follow_from_the_inputs_that_come_with_them() -> None:
    for name, constraint in (
        ("npu_gru_backward", saved_gru_results),
        ("npu_lstm_backward", saved_lstm_results),
        ("npu_lstm_data_backward", saved_lstm_data_results),
    ):
        args = EXAMPLES[name](torch.Generator().manual_seed(1)).args
        spoilt = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        places = range(9, 15) if name == "npu_gru_backward" else range(len(args) - 8, len(args))
        places = [place - (name == "npu_lstm_data_backward") for place in places]
        for place in places:
            spoilt[place].zero_()
        constraint(drawn(*spoilt))
        for place in places:
            torch.testing.assert_close(spoilt[place], args[place], atol=1e-5, rtol=1e-5)


def test_a_histogram_is_that_of_the_data() -> None:
    data, low, high, counts = torch.tensor([0.0, 1.0, 2.0, 4.0]), torch.ones(1), torch.ones(1), whole(5, 3, 2, 1)
    sequences.histogram(drawn(data, low, high, counts))
    assert (float(low), float(high)) == (0, 4)
    assert counts.tolist() == [1, 2, 3, 4]
