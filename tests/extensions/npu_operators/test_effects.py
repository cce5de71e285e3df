"""Effects of NPU operators, as a comparison reads them."""

from __future__ import annotations

from msprobe_hooks.dump.effects import ValidRows, operation_effects, set_valid_rows, valid_rows_of


def test_of_some_results_the_last_are_undefined() -> None:
    attention = operation_effects("npu_fusion_attention")
    assert [attention.is_undefined(str(place)) for place in range(5)] == [False] * 3 + [True] * 2


def test_rows_of_a_user_come_besides_the_built_in_ones() -> None:
    set_valid_rows({"npu_mine": ValidRows("sizes", holds="sizes")})
    try:
        assert valid_rows_of("npu_mine") is not None
        assert valid_rows_of("npu_grouped_matmul") is not None
    finally:
        set_valid_rows({})
