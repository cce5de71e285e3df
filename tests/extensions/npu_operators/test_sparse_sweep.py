"""Records of sparse attention, with inputs drawn from statistics, on devices whose kernels are good and bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.support.cann.example_call import Call
from tests.support.cann.examples import lightning_indexer, native_sparse_attention, sparse_attention
from tests.support.cann.operators import lightning_indexer as indexer_kernels
from tests.support.cann.operators import native_sparse_attention as native_kernels
from tests.support.cann.operators import sparse_attention as sparse_kernels
from tests.support.dumps.recorder import Recorder, element

CASES = [
    "npu_block_sparse_attention-packed",
    "npu_dense_lightning_indexer_grad_kl_loss",
    "npu_dense_lightning_indexer_softmax_lse-packed",
    "npu_fused_floyd_attention",
    "npu_kv_quant_sparse_flash_attention-paged",
    "npu_lightning_indexer-batched",
    "npu_lightning_indexer-packed",
    "npu_lightning_indexer-paged",
    "npu_nsa_compress",
    "npu_nsa_compress_attention",
    "npu_nsa_compress_attention_infer",
    "npu_nsa_compress_infer",
    "npu_nsa_select_attention",
    "npu_nsa_select_attention_infer",
    "npu_quant_lightning_indexer-paged",
    "npu_ring_attention_update-packed",
    "npu_sparse_flash_attention-packed",
    "npu_sparse_flash_attention-paged",
    "npu_sparse_lightning_indexer_grad_kl_loss",
]
FAMILIES = (
    (lightning_indexer, indexer_kernels),
    (native_sparse_attention, native_kernels),
    (sparse_attention, sparse_kernels),
)


def family(name: str) -> tuple[Call, Callable[..., Any]]:
    """An example and the kernel for it."""
    for module, kernels in FAMILIES:
        if name in module.EXAMPLES:
            return module.EXAMPLES[name](torch.Generator().manual_seed(2)), getattr(kernels, name.partition("-")[0])
    raise KeyError(name)


def recorded(recorder: Recorder, name: str, *, trained: bool = False) -> Any:
    call, _ = family(name)

    def leaf(tensor: Tensor) -> Tensor:
        return tensor.requires_grad_() if trained and tensor.is_floating_point() else tensor

    args, kwargs = tree_map_only(Tensor, leaf, (call.args, call.kwargs))
    return recorder.NPU[name.partition("-")[0]](*args, **kwargs)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_that_is_right_passes(name: str, recorder: Recorder, check: Any, device_that: Any) -> None:
    kernel = family(name)[1]
    device = device_that(lambda func, args, kwargs: kernel(*args, **kwargs))
    result = check(recorded(recorder, name), device=device)
    assert result.forward.outcome == "pass", result.forward.reason


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_that_gives_one_row_for_another_is_found(
    name: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    def turned(tensor: Tensor) -> Tensor:
        return tensor.flip(next((dim for dim, size in enumerate(tensor.shape) if size > 1), 0)) + (tensor.numel() == 1)

    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return map_tensors(turned, func(*args, **kwargs))

    made = recorded(recorder, name)
    assert check(made, device=device_that(alter)).forward.outcome == "fail"


GRADIENTS = [
    "npu_block_sparse_attention_backward-packed",
    "npu_fused_floyd_attention_backward",
    "npu_lightning_indexer_grad-packed",
    "npu_nsa_compress_grad",
    "npu_nsa_select_attention_grad",
    "npu_sparse_flash_attention_grad-batched",
]


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_that_level_aten_records_is_judged_by_its_definition(
    name: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    call, kernel = family(name)
    forward = {
        "input_args": element(call.args),
        "input_kwargs": element(call.kwargs),
        "output": element(list(kernel(*call.args, **call.kwargs))),
    }
    made = recorder.keep(f"Aten.{name.partition('-')[0]}.0", forward)
    right = check(made, device=device_that(lambda func, args, kwargs: kernel(*args, **kwargs)))
    assert right.forward.outcome == "pass", right.forward.reason

    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        first, *rest = kernel(*args, **kwargs)
        return (first * 1.1, *rest)

    assert check(made, device=device_that(alter)).forward.outcome == "fail"


@pytest.mark.parametrize("name", [name for name in CASES if family(name)[0].differentiate])
def test_gradients_of_a_correct_device_pass(name: str, recorder: Recorder, check: Any) -> None:
    made = recorded(recorder, name, trained=True)
    assert made.backward is not None
    result = check(made, device=SimDevice())
    assert result.backward.outcome == "pass", result.backward.reason


def test_a_mask_that_is_forgotten_is_found(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **{**kwargs, "sparse_mode": 0})

    made = recorded(recorder, "npu_lightning_indexer-batched")
    assert check(made, device=device_that(alter)).forward.outcome == "fail"


def test_pages_in_another_order_are_found(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **{**kwargs, "block_table": kwargs["block_table"].flip(1)})

    made = recorded(recorder, "npu_sparse_flash_attention-paged")
    assert check(made, device=device_that(alter)).forward.outcome == "fail"


def test_positions_in_another_order_are_no_fault(recorder: Recorder, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        positions, values = func(*args, **kwargs)
        there = (positions >= 0).sum(-1, keepdim=True)
        # the last of those that are there comes first, and so on
        order = torch.arange(positions.shape[-1]).expand_as(positions)
        order = torch.where(order < there, there - 1 - order, order)
        return positions.gather(-1, order), values.gather(-1, order)

    made = recorded(recorder, "npu_lightning_indexer-batched")
    assert check(made, device=device_that(alter)).forward.outcome == "pass"
