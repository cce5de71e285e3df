"""Drawn arguments of NPU operators that have to fit each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.engine.replay.calls.arguments import constrain


def mended(api: str, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return constrain(api, args, kwargs, 0)


def wild(*shape: int) -> torch.Tensor:
    """Return indices as a dump of other shapes, or rounded statistics, might lead to."""
    return torch.randint(-1000, 1000, shape, generator=torch.Generator().manual_seed(0))


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def mask(*shape: int) -> torch.Tensor:
    return floats(*shape) > 0


def test_a_compressed_attention_mask_is_the_upper_triangle() -> None:
    _, kwargs = mended("npu_fusion_attention", atten_mask=mask(8, 8), sparse_mode=3)
    assert torch.equal(kwargs["atten_mask"], torch.ones(8, 8).triu(1).bool())
    _, kwargs = mended("npu_fusion_attention", atten_mask=mask(8, 8), sparse_mode=0)
    assert torch.equal(kwargs["atten_mask"], mask(8, 8))


@pytest.mark.parametrize("api", ["npu_prompt_flash_attention", "npu_fused_infer_attention_score"])
def test_so_is_that_of_inference(api: str) -> None:
    _, kwargs = mended(api, atten_mask=mask(8, 8), sparse_mode=2)
    assert torch.equal(kwargs["atten_mask"], torch.ones(8, 8).triu(1).bool())


def test_ends_of_packed_sequences_grow_to_the_number_of_tokens() -> None:
    ends = {"actual_seq_qlen": wild(4), "actual_seq_kvlen": wild(4)}
    _, kwargs = mended("npu_fusion_attention_v3", floats(10, 2, 4), floats(7, 2, 4), floats(7, 2, 4), 2, "TND", **ends)
    assert kwargs["actual_seq_qlen"].tolist() == [3, 6, 8, 10]
    assert kwargs["actual_seq_kvlen"].tolist() == [2, 4, 6, 7]


@pytest.mark.parametrize("api", ["npu_fusion_attention", "npu_fusion_attention_grad"])
def test_ends_without_a_layout_grow_too(api: str) -> None:
    tokens = (floats(10, 2, 4), floats(7, 2, 4), floats(7, 2, 4))
    _, kwargs = mended(api, *tokens, actual_seq_qlen=wild(4), actual_seq_kvlen=wild(4))
    assert (kwargs["actual_seq_qlen"].tolist(), kwargs["actual_seq_kvlen"].tolist()) == ([3, 6, 8, 10], [2, 4, 6, 7])


@pytest.mark.parametrize(
    ("api", "arguments", "named", "expected"),
    [
        ("npu_grouped_matmul", ([floats(10, 4)], [floats(4, 4, 2)]), {"group_list": wild(4)}, [3, 6, 8, 10]),
        (
            "npu_grouped_matmul",
            ([floats(10, 4)], [floats(4, 4, 2)]),
            {"group_list": wild(4), "group_list_type": 1},
            [3, 3, 2, 2],
        ),
        ("npu_dynamic_quant", (floats(2, 5, 4),), {"group_index": wild(4)}, [3, 6, 8, 10]),
        ("npu_group_quant", (floats(10, 4), floats(4, 4), wild(4)), {}, [3, 6, 8, 10]),
    ],
)
def test_groups_share_out_the_rows(api: str, arguments: Any, named: Any, expected: list[int]) -> None:
    args, kwargs = mended(api, *arguments, **named)
    groups = args[2] if len(args) > 2 else next(iter(kwargs.values()))
    assert groups.tolist() == expected


def test_routed_tokens_have_places_of_their_own() -> None:
    (_, places), _ = mended("npu_moe_token_unpermute", floats(8, 3), wild(8))
    assert sorted(places.tolist()) == list(range(8))
    (_, copies, *_), _ = mended("npu_moe_init_routing", floats(3, 2), wild(3, 2), wild(3, 2), 3)
    assert copies.tolist() == [[0, 3], [1, 4], [2, 5]]
    (_, chosen), _ = mended("npu_moe_token_permute_with_routing_map", floats(6, 3), mask(6, 4), num_out_tokens=12)
    assert chosen.sum(1).tolist() == [2] * 6
    (_, counts), _ = mended("npu_moe_re_routing", floats(7, 3), wild(2, 3))
    assert int(counts.sum()) == 7


def test_updates_are_written_to_places_of_their_own_that_have_room() -> None:
    (_, places, _), _ = mended("npu_scatter_nd_update", floats(4, 5, 3), wild(9, 2), floats(9, 3))
    assert len({tuple(place) for place in places.tolist()}) == 9
    assert places[:, 0].max() < 4
    assert places[:, 1].max() < 5
    assert places.min() >= 0
    (_, starts, *_), _ = mended("scatter_update", floats(3, 2, 9), wild(3), floats(3, 2, 4), -1)
    assert 0 <= int(starts.min()) <= int(starts.max()) <= 5
