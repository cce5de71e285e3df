"""Positions of the highest scores are judged by the scores that they select."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.selected_positions import RankedPositions, accept_ties, gradients_of_ranked
from pytest_msprobe.extensions.npu_operators.sparse_attention.lightning_indexer import (
    lightning_indexer_scores,
    npu_lightning_indexer,
)

# One head whose score of key s is s * 1.0, but for keys 3 and 4, which are alike within bfloat16.
SCORES = torch.tensor([1.0, 2.0, 5.0, 8.0, 8.0, 9.0])
QUERY, WEIGHTS = torch.ones(1, 1, 1, 1, dtype=torch.bfloat16), torch.ones(1, 1, 1, dtype=torch.bfloat16)
KEY = SCORES.to(torch.bfloat16).reshape(1, 6, 1, 1)
OPTIONS = {"sparse_count": 4, "sparse_mode": 0, "return_value": True}


def positions(*places: int) -> Tensor:
    return torch.tensor(places, dtype=torch.int32).reshape(1, 1, 1, -1)


def judged(found: Tensor, values: Tensor | None = None) -> Any:
    golden = npu_lightning_indexer(QUERY.float(), KEY.float(), WEIGHTS.float(), **OPTIONS)
    target = (found, golden[1].clone() if values is None else values)
    return accept_ties(op_info("npu_lightning_indexer").selection, ((QUERY, KEY, WEIGHTS), OPTIONS), target, golden)


def test_equal_scores_may_be_selected_in_any_order() -> None:
    assert judged(positions(5, 4, 3, 2))[0].flatten().tolist() == [5, 3, 4, 2]


def test_the_order_of_the_selected_is_left_open() -> None:
    indices, values = judged(positions(2, 3, 4, 5), torch.tensor([5.0, 8.0, 8.0, 9.0]).reshape(1, 1, 1, 4))
    assert indices.flatten().tolist() == [5, 3, 4, 2]
    assert values.flatten().tolist() == [9.0, 8.0, 8.0, 5.0]


def test_another_score_stays_wrong() -> None:
    assert judged(positions(5, 3, 4, 1))[0].flatten().tolist() == [5, 3, 4, 1]


def test_a_position_twice_stays_wrong() -> None:
    assert judged(positions(5, 3, 3, 2))[0].flatten().tolist() == [5, 3, 3, 2]


def test_a_position_that_is_not_there_stays_wrong() -> None:
    assert judged(positions(5, 4, 3, 6))[0].flatten().tolist() == [5, 4, 3, 6]


def test_a_missing_position_stays_wrong() -> None:
    assert judged(positions(5, 4, 3, -1))[0].flatten().tolist() == [5, 4, 3, -1]


def test_padding_before_the_last_position_stays_wrong() -> None:
    key = KEY.float()[:, :3]
    golden = npu_lightning_indexer(QUERY.float(), key, WEIGHTS.float(), **OPTIONS)
    target = (positions(2, -1, 1, 0), golden[1])
    accepted = accept_ties(
        op_info("npu_lightning_indexer").selection, ((QUERY, KEY[:, :3], WEIGHTS), OPTIONS), target, golden
    )
    assert accepted[0].flatten().tolist() == [2, -1, 1, 0]


def test_an_order_of_blocks_is_accepted_among_other_results() -> None:
    ranked = torch.tensor([[[0, 2]]], dtype=torch.int32), torch.tensor([[[2, 0]]], dtype=torch.int32)
    call = ((torch.ones(1, 1, 4), torch.ones(12, 1, 4), torch.ones(12, 1, 4), 1.0, 1, 32, 16, 64, 2),)
    kwargs = {"actual_seq_qlen": [1], "actual_cmp_seq_kvlen": [12], "actual_sel_seq_kvlen": [3]}
    rest = torch.ones(1)
    found, wanted = ((rest, each, rest, rest) for each in ranked)
    # the weights are equal, so that blocks 0 and 1, of eight of them each, come before block 2
    accepted = accept_ties(op_info("npu_nsa_compress_attention").selection, (call[0], kwargs), found, wanted)
    assert accepted[1].tolist() == wanted[1].tolist()


def test_gradients_reach_what_the_target_selected() -> None:
    ranked = RankedPositions(lightning_indexer_scores, outputs=2, values_at=1)
    golden = npu_lightning_indexer(QUERY.float(), KEY.float(), WEIGHTS.float(), **OPTIONS)
    target = (positions(5, 4, 3, 2), golden[1])
    arriving = {"1": torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)}
    known = {"args.1": torch.zeros(1, 6, 1, 1)}
    found = gradients_of_ranked(ranked, ((QUERY, KEY, WEIGHTS), OPTIONS), target, golden, arriving, known)
    assert found["args.1"].flatten().tolist() == [0.0, 0.0, 4.0, 3.0, 2.0, 1.0]


def test_gradients_stay_where_the_target_selected_what_golden_did() -> None:
    ranked = RankedPositions(lightning_indexer_scores, outputs=2, values_at=1)
    golden = npu_lightning_indexer(QUERY.float(), KEY.float(), WEIGHTS.float(), **OPTIONS)
    arriving, known = {"1": torch.ones(1, 1, 1, 4)}, {"args.1": torch.full((1, 6, 1, 1), 7.0)}
    found = gradients_of_ranked(ranked, ((QUERY, KEY, WEIGHTS), OPTIONS), golden, golden, arriving, known)
    assert torch.equal(found["args.1"], known["args.1"])
