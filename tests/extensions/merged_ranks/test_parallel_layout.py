"""Which ranks hold one model: what Megatron's numbering says, and layouts that cannot be."""

from __future__ import annotations

from itertools import product

import pytest

from msprobe_hooks.extensions.merged_ranks.merged_dump import LayoutError, ParallelLayout, read_layout


def test_tensor_parallel_ranks_are_neighbours_and_stages_far_apart() -> None:
    assert ParallelLayout(tp=2, pp=2).models(range(8)) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def test_the_order_says_which_dimension_counts_first() -> None:
    assert ParallelLayout(tp=2, pp=2, order="tp-pp-dp").models(range(8)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert ParallelLayout(tp=2, pp=2, order="dp-tp-pp").models(range(8)) == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "pp-dp-tp", "dp-tp-pp", "tp-pp-dp"])
def test_each_rank_is_in_one_model_at_the_place_that_counting_through_gives(order: str) -> None:
    sizes = {"tp": 2, "pp": 3, "dp": 4, "cp": 1, "ep": 1}
    models = ParallelLayout(tp=2, pp=3, order=order).models(range(24))
    slowest_first = [range(sizes[name]) for name in reversed(order.split("-"))]
    for rank, place in enumerate(product(*slowest_first)):
        at = dict(zip(reversed(order.split("-")), place, strict=True))
        assert models[at["dp"]][at["pp"]][at["tp"]] == rank


def test_ranks_of_a_sequence_are_between_those_of_a_tensor_and_data_parallel_ones() -> None:
    assert ParallelLayout(tp=2, cp=2).models(range(8)) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    assert ParallelLayout(cp=2, order="tp-dp-cp-pp").models(range(4)) == [[[0, 2]], [[1, 3]]]


def test_experts_are_spread_over_ranks_of_a_sequence_and_data_parallel_neighbours() -> None:
    layout = ParallelLayout(cp=2, ep=4)
    assert layout.models(range(8)) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    assert layout.expert_groups == [0, 1, 2, 3]
    assert ParallelLayout(cp=4, ep=2).expert_groups == [0, 1, 0, 1]
    assert ParallelLayout(tp=2, ep=2, order="tp-dp-ep-pp").models(range(8)) == [[[0, 1, 4, 5]], [[2, 3, 6, 7]]]


def test_a_layout_names_what_differs_from_the_default() -> None:
    assert str(ParallelLayout(cp=2, ep=4)) == "tp=1,cp=2,ep=4,pp=1,vpp=1,order=tp-cp-ep-dp-pp"
    assert read_layout({"cp": "2", "gradients": "mean"}).gradient_scale == 2


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tp": "0"}, "tp=0 is not a valid number of ranks; specify 1 or more"),
        ({"tp": "two"}, "tp=two is not a valid number of ranks"),
        ({"dp": "2"}, "a layout has no 'dp'; known: tp, cp, ep, pp, vpp, order, gradients"),
        ({"tp": "2", "vpp": "2"}, "vpp=2 needs pipeline stages, but pp is 1; specify pp as well"),
        ({"cp": "3", "ep": "2"}, "cp=3 and ep=2 do not fit: experts are spread over"),
        ({"cp": "2", "gradients": "max"}, "gradients=max is not valid; specify sum or mean"),
        ({"cp": "2", "order": "tp-dp-pp"}, "order=tp-dp-pp has no cp, but cp is 2; specify it"),
        ({"order": "tp-pp"}, "order=tp-pp is not valid; specify tp, dp and pp once each, as in tp-cp-ep-dp-pp"),
        ({"order": "tp-tp-dp-pp"}, "order=tp-tp-dp-pp is not valid"),
    ],
)
def test_a_layout_that_cannot_be_says_why(given: dict[str, str], problem: str) -> None:
    with pytest.raises(LayoutError) as raised:
        read_layout(given)
    assert str(raised.value).startswith(problem)


def test_sizes_that_do_not_divide_the_ranks_and_missing_ranks_are_reported() -> None:
    with pytest.raises(LayoutError, match="tp=3 and pp=1 make 3 ranks of one model, which do not divide the 4"):
        ParallelLayout(tp=3).models(range(4))
    with pytest.raises(LayoutError, match="tp=2, cp=2 and pp=1 make 4 ranks of one model, which do not divide the 6"):
        ParallelLayout(tp=2, cp=2).models(range(6))
    with pytest.raises(LayoutError, match="rank 1 of ranks 0 to 3 is missing"):
        ParallelLayout(tp=2).models([0, 2, 3])
