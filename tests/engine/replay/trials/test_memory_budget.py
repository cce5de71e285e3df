"""A call that would not fit is a skip with its size, before anything is allocated."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import BackwardRecord, ForwardRecord, TensorElement
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.trials.memory_budget import (
    admit_at_once,
    needed_bytes,
    needed_on_card,
    require_memory,
)
from pytest_msprobe.engine.values.system_memory import free_bytes, total_bytes
from pytest_msprobe.results.outcomes import Skip, SkipReason


def call(*shape: int, dtype: str = "torch.float32", backward: bool = False) -> Call:
    element = TensorElement("torch.Tensor", dtype, shape)
    return Call(
        parse_api_name("Torch.add.0.forward"),
        ForwardRecord("Torch.add.0.forward", [element, [element]], {"out": element}, [element], {}),
        BackwardRecord("Torch.add.0.backward", [element], [element]) if backward else None,
        Path("none"),
    )


def test_every_tensor_counts_as_drawn_on_the_target_and_raised() -> None:
    assert needed_bytes(call(10, 10)) == 4 * 100 * (4 + 4 + 8)
    assert needed_bytes(call(10, 10, dtype="torch.float16")) == 4 * 100 * (2 + 2 + 8)
    assert needed_bytes(call(10, 10, backward=True)) == 6 * 100 * (4 + 4 + 8)
    assert needed_bytes(call(10, 0)) == 0


def test_there_is_some_memory() -> None:
    assert 2**20 < free_bytes() <= total_bytes()


def test_what_fits_passes_and_what_does_not_is_a_skip_with_its_size() -> None:
    require_memory(call(10, 10), CpuDevice(), admit_at_once)
    with pytest.raises(Skip, match="GiB") as caught:
        require_memory(call(2**20, 2**20), CpuDevice(), admit_at_once)
    assert caught.value.reason is SkipReason.MEMORY


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library has no malloc_trim")
def test_what_earlier_calls_have_freed_is_the_systems_again_before_a_large_call_alone() -> None:
    # Between freed tensors one that stays: of its own accord the allocator gives back only what lies at its end.
    tensors = [torch.zeros(2**14) for _ in range(1024)]
    del tensors[: 1024 - 1]
    kept, asked = resident_bytes(), []
    for elements in (2**22, 2**26):
        require_memory(call(elements), CpuDevice(), lambda needed, free: asked.append(resident_bytes()))
    assert kept - asked[0] < 2**24 < kept - asked[1]
    assert len(tensors) == 1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_huge_record_is_skipped_by_the_check(check) -> None:  # type: ignore[no-untyped-def]
    result = check(call(2**20, 2**20, backward=True))
    assert result.forward.skip is SkipReason.MEMORY
    assert result.backward.skip is SkipReason.MEMORY


def test_a_card_needs_each_tensor_and_as_much_to_work_with() -> None:
    assert needed_on_card(call(10, 10, dtype="torch.float16")) == 4 * 100 * 2 * 2


class SmallCard(CpuDevice):
    def free_memory(self) -> int:
        return 2**20


def test_a_call_that_a_card_has_no_room_for_is_a_skip_with_its_size() -> None:
    with pytest.raises(Skip, match=r"needs about 0\.5 GiB, 0\.0 GiB are free"):
        require_memory(call(2**12, 2**12), SmallCard(), admit_at_once)
