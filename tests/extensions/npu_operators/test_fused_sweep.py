"""Records of fused operators, with inputs drawn from statistics, on devices that compute well and badly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.results.outcomes import SkipReason
from tests.support.dumps.recorder import Recorder, element

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

CAUSAL = torch.ones(6, 6).triu(1).bool()


def half(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float32).bfloat16()


def single(*shape: int) -> Tensor:
    return torch.randn(shape)


def whole(*shape: int, high: int = 127, low: int = 0, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.randint(low, high + 1, shape, dtype=dtype)


def routing(tokens: int, experts: int, each: int) -> Tensor:
    return torch.rand(tokens, experts).argsort(-1) < each


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


def trained(tensor: Tensor) -> Tensor:
    return tensor.requires_grad_()


CALLS: dict[str, Callable[[], Arguments]] = {
    "npu_add_rms_norm_dynamic_quant": lambda: call(half(6, 32), half(6, 32), half(32)),
    "npu_add_rms_norm_quant": lambda: call(half(6, 32), half(6, 32), half(32), single(32).abs() + 0.1, whole(32)),
    "npu_anti_quant": lambda: call(whole(4, 8, dtype=torch.int8), single(8)),
    "npu_apply_rotary_pos_emb": lambda: call(half(2, 5, 4, 8), half(2, 5, 1, 8), half(2, 5, 1, 8), half(2, 5, 1, 8)),
    "npu_attention_update": lambda: call([single(6), single(6)], [half(6, 8), half(6, 8)], 0),
    "npu_bmmV2": lambda: call(trained(half(3, 4, 5)), trained(half(3, 5, 6)), []),
    "npu_clipped_swiglu": lambda: call(half(6, 16)),
    "npu_dynamic_quant": lambda: call(half(6, 64)),
    "npu_dynamic_quant_asymmetric": lambda: call(
        half(6, 32), smooth_scales=half(2, 32), group_index=torch.tensor([2, 6], dtype=torch.int32)
    ),
    "npu_ffn": lambda: call(half(6, 8), half(2, 8, 16), half(2, 16, 8), "silu", expert_tokens=[2, 4]),
    "npu_fused_infer_attention_score": lambda: call(
        half(2, 5, 32), half(2, 7, 32), half(2, 7, 32), num_heads=4, scale=0.35
    ),
    "npu_fusion_attention_v2": lambda: call(
        *(trained(half(2, 4, 6, 8)) for _ in range(3)), 4, "BNSD", atten_mask=CAUSAL, sparse_mode=1, scale=0.35
    ),
    "npu_fusion_attention_v3": lambda: call(*(trained(half(2, 4, 6, 8)) for _ in range(3)), 4, "BNSD", scale=0.35),
    "npu_gather_sparse_index": lambda: call(half(9, 4), whole(3, 2, high=8)),
    "npu_gelu_mul": lambda: call(trained(half(6, 16)), approximate="tanh"),
    "npu_group_norm_swish": lambda: call(trained(half(2, 8, 5)), 4, trained(half(8)), trained(half(8))),
    "npu_group_quant": lambda: call(half(6, 16), single(2, 16) * 20, torch.tensor([2, 6])),
    "npu_grouped_matmul": lambda: call(
        [trained(half(12, 8))], [trained(half(3, 8, 6))], group_list=torch.tensor([2, 7, 12]), split_item=2
    ),
    "npu_incre_flash_attention": lambda: call(half(2, 1, 32), half(2, 7, 32), half(2, 7, 32), num_heads=4),
    "npu_interleave_rope": lambda: call(half(2, 3, 4, 8), half(2, 1, 4, 8), half(2, 1, 4, 8)),
    "npu_moe_compute_expert_tokens": lambda: call(whole(20, high=7).sort().values, 8),
    "npu_moe_finalize_routing": lambda: call(
        half(12, 8), half(6, 8), None, half(4, 8), half(6, 2), torch.randperm(12).int(), whole(6, 2, high=3)
    ),
    "npu_moe_gating_top_k": lambda: call(single(6, 16), 3, bias=single(16), k_group=2, group_count=4, norm_type=1),
    "npu_moe_init_routing": lambda: call(half(6, 8), torch.arange(12).view(2, 6).T.int(), whole(6, 2, high=3), 6),
    "npu_moe_init_routing_v2": lambda: call(
        half(6, 32), whole(6, 2, high=3), active_num=12, expert_num=4, expert_tokens_num_type=1, quant_mode=1,
        expert_tokens_num_flag=True, active_expert_range=[0, 4], row_idx_type=1
    ),
    "npu_moe_re_routing": lambda: call(
        half(12, 8), torch.full((2, 3), 2, dtype=torch.int32), per_token_scales=single(12)
    ),
    "npu_moe_token_permute": lambda: call(trained(half(6, 8)), whole(6, 2, high=3)),
    "npu_moe_token_permute_with_routing_map": lambda: call(
        trained(half(6, 8)), routing(6, 4, 2), probs=trained(half(6, 4)), num_out_tokens=12
    ),
    "npu_moe_token_unpermute_with_routing_map": lambda: call(
        trained(half(12, 8)), torch.randperm(12).int(), [6, 8], probs=trained(half(6, 4)), routing_map=routing(6, 4, 2)
    ),
    "npu_moe_token_unpermute": lambda: call(trained(half(12, 8)), torch.randperm(12).int(), trained(half(6, 2))),
    "npu_mrope": lambda: call(whole(5, high=8, dtype=torch.int64), half(5, 32), half(5, 16), half(9, 16), 16),
    "npu_prompt_flash_attention": lambda: call(half(2, 5, 32), half(2, 7, 32), half(2, 7, 32), num_heads=4),
    "npu_quant_matmul": lambda: call(
        whole(6, 32, low=-128, dtype=torch.int8), whole(32, 8, low=-128, dtype=torch.int8), single(8) / 2000
    ),
    "npu_quant_matmul_gelu": lambda: call(
        whole(6, 32, low=-5, high=5, dtype=torch.int8), whole(32, 8, low=-5, high=5, dtype=torch.int8),
        single(6).abs() / 9, single(8).abs()
    ),
    "npu_batch_gather_matmul": lambda: call(
        half(6, 8), half(6, 16), half(3, 1, 8, 16), whole(6, high=2), scale=1.0
    ),
    "npu_fused_linear_online_max_sum": lambda: call(half(8, 16), half(12, 16), whole(8, high=11), 0, 11, True),
    "npu_fused_matmul": lambda: call(half(6, 8), half(8, 4), x3=half(6, 4), fused_op_type="mul"),
    "npu_grouped_matmul_add": lambda: call(single(2, 5, 4), half(8, 5), half(8, 4), torch.tensor([3, 8])),
    "npu_grouped_matmul_finalize_routing": lambda: call(
        whole(6, 16, low=-128, dtype=torch.int8), whole(3, 16, 4, low=-128, dtype=torch.int8), torch.tensor([2, 0, 4]),
        scale=single(3, 4).abs() / 99, pertoken_scale=single(6).abs(), logit=single(6), row_index=whole(6, high=2),
        output_bs=3
    ),
    "npu_grouped_matmul_swiglu_quant_v2": lambda: call(
        whole(8, 16, low=-128, dtype=torch.int8), [whole(2, 16, 32, low=-128, dtype=torch.int8)],
        [single(2, 32).abs() / 99], single(8).abs() + 0.5, torch.tensor([3, 8])
    ),
    "npu_quant_grouped_matmul_dequant": lambda: call(
        single(6, 16).half(), whole(2, 8, 16, low=-128, dtype=torch.int8), single(2, 8).abs() / 99, torch.tensor([2, 6])
    ),
    "npu_quantize": lambda: call(half(6, 16), single(16).abs() / 50 + 0.01, None, axis=1, dtype=torch.int32),
    "npu_rms_norm_quant": lambda: call(half(6, 32), half(32), half(32), half(1) * 20, whole(1, dtype=torch.int8)),
    "npu_scatter_nd_update": lambda: call(half(9, 4), torch.randperm(9)[:3].view(3, 1), half(3, 4)),
    "npu_scatter_nd_update_": lambda: call(half(9, 4), torch.randperm(9)[:3].view(3, 1), half(3, 4)),
    "npu_sign_bits_pack": lambda: call(single(30), 2),
    "npu_swiglu_quant": lambda: call(half(6, 64), quant_mode=1),
    "npu_transpose_batchmatmul": lambda: call(half(3, 4, 16), half(3, 16, 6)),
    "npu_weight_quant_batchmatmul": lambda: call(
        trained(half(6, 16)), whole(16, 8, low=-128, dtype=torch.int8), half(8) / 50, half(8)
    ),
    "scatter_update": lambda: call(half(3, 2, 9, 4), torch.tensor([4, 0, 7]), half(3, 2, 2, 4), -2),
}  # fmt: skip


def recorded(recorder: Recorder, api: str) -> Any:
    args, kwargs = CALLS[api]()
    return recorder.NPU[api](*args, **kwargs)


@pytest.mark.parametrize("api", CALLS)
def test_a_correct_device_passes(api: str, recorder: Recorder, check: Any) -> None:
    made = recorded(recorder, api)
    for seed in range(3):
        result = check(made, device=SimDevice(), seed=seed)
        assert result.forward.outcome == "pass", result.forward.reason
        if made.backward is not None:
            assert result.backward.outcome == "pass", result.backward.reason


@pytest.mark.parametrize("api", CALLS)
def test_a_device_that_gives_one_row_for_another_is_found(
    api: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return map_tensors(lambda tensor: tensor.flip(0), func(*args, **kwargs))

    assert check(recorded(recorder, api), device=device_that(alter)).forward.outcome == "fail"


# Not those whose result alone is a float.
QUANTIZING = [api for api in CALLS if torch.int8 in op_info(api).quantizes and "quant" in api and api != "npu_quantize"]


def neighbours(share: int) -> Callable[..., Any]:
    """One number of 8 bits in ``share`` is the next."""

    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        def nudged(tensor: Tensor) -> Tensor:
            if tensor.dtype is torch.int8:
                flat = tensor.view(-1)
                flat[::share] += torch.where(flat[::share] > 0, -1, 1).to(torch.int8)
            return tensor

        return map_tensors(nudged, func(*args, **kwargs))

    return alter


@pytest.mark.parametrize("api", [api for api in QUANTIZING if api != "npu_weight_quant_batchmatmul"])
def test_a_few_neighbours_are_rounding_and_many_are_not(
    api: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    made = recorded(recorder, api)
    assert check(made, device=device_that(neighbours(16))).forward.outcome == "pass"
    assert check(made, device=device_that(neighbours(4))).forward.outcome == "fail"


def test_an_index_next_to_quantized_rows_has_no_neighbours(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        rows, places, *rest = func(*args, **kwargs)
        places[0] += 1
        return rows, places, *rest

    assert check(recorded(recorder, "npu_moe_init_routing_v2"), device=device_that(alter)).forward.outcome == "fail"


def test_a_number_that_is_two_away_is_no_rounding(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        y, scale = func(*args, **kwargs)
        y[0, 0] = torch.where(y[0, 0] > 0, y[0, 0] - 2, y[0, 0] + 2)
        return y, scale

    assert check(recorded(recorder, "npu_dynamic_quant"), device=device_that(alter)).forward.outcome == "fail"


def test_a_result_that_was_not_asked_for_may_be_anything(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        y1, _, x = func(*args, **kwargs)
        return y1, torch.full_like(y1, 7), x

    made = recorded(recorder, "npu_add_rms_norm_quant")
    assert check(made, device=device_that(alter)).forward.outcome == "pass"


@pytest.mark.parametrize("key", ["torch.ops.npu.npu_swiglu.0", "torch.ops.npu.npu_swiglu.default.0"])
def test_an_operator_recorded_as_its_library_s_has_the_same_golden_definition(
    key: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    forward = {"input_args": [element(half(4, 8))], "input_kwargs": {}, "output": [element(half(4, 4))]}
    made = recorder.keep(key, forward)
    assert check(made).forward.outcome == "pass"

    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs).flip(0)

    assert check(made, device=device_that(alter)).forward.outcome == "fail"


def test_an_argument_without_a_golden_definition_is_named_in_the_skip(recorder: Recorder, check: Any) -> None:
    q = half(1, 2, 4, 8)
    key = "NPU.npu_fusion_attention.0"
    sound = recorder.NPU.npu_fusion_attention(q, q, q, 2, "BNSD")
    assert check(sound).forward.outcome == "pass"
    forward = {
        "input_args": [element(q)] * 3 + [element(2), element("BNSD")],
        "input_kwargs": {"padding_mask": element(single(2))},
        "output": [element(q)],
    }
    result = check(recorder.keep(key, forward)).forward
    assert result.skip is SkipReason.NO_GOLDEN
    assert "npu_fusion_attention has no golden definition with padding_mask" in result.verdict.reason


def test_an_argument_that_the_definition_does_not_know_is_named_in_the_skip(recorder: Recorder, check: Any) -> None:
    forward = {
        "input_args": [element(half(2, 8))],
        "input_kwargs": {"limit": element(2.0)},
        "output": [element(half(2, 4))],
    }
    result = check(recorder.keep("NPU.npu_swiglu.0", forward)).forward
    assert result.skip is SkipReason.REJECTED_INPUTS
    assert "npu_swiglu() got an unexpected keyword argument 'limit'" in result.verdict.reason


def test_an_operator_that_communicates_says_how_its_ranks_are_checked(recorder: Recorder, check: Any) -> None:
    forward = {
        "input_args": [element(half(2, 8)), element(half(8, 4)), element("group")],
        "input_kwargs": {},
        "output": [element(half(2, 4))],
    }
    result = check(recorder.keep("NPU.npu_mm_all_reduce_base.0", forward)).forward
    assert result.skip is SkipReason.FUSED_COMMUNICATION
    assert result.verdict.reason.startswith("communicates: check its ranks with --msprobe-communication")
