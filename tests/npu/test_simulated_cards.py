"""What the simulated cards do, seen by way of torch_npu in one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.npu.process import require_cards, run_script

pytestmark = pytest.mark.slow

FAULTS = "sin=slow,cos=fails-later,exp=wrong-once:2,tanh@1=loses-card"
SCRIPT = """
import json, os
import torch, torch_npu

facts = {}
x = torch.linspace(-2, 2, 8).npu()


def error_of(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


facts["uuids"] = [bytes.fromhex(str(torch.npu.get_device_properties(i).uuid).replace("-", "")).decode() for i in (0, 1)]
facts["total"] = torch.npu.mem_get_info()[1]
facts["too much"] = error_of(lambda: torch.empty(1 << 28, device="npu"))
facts["exp"] = [bool((torch.exp(x).cpu() == torch.exp(x.cpu())).all()) for _ in range(3)]

aside = torch.npu.Stream()
with torch.npu.stream(aside):
    torch.sin(x)
    event = aside.record_event()
facts["slow"] = [aside.query(), event.query(), torch.npu.current_stream().query()]
aside.synchronize()
facts["waited"] = [aside.query(), event.query()]

torch.cos(x)
facts["late"] = [error_of(torch.npu.synchronize), error_of(torch.npu.synchronize)]

packed = torch_npu.npu_format_cast(torch.ones(16, 16).npu(), 29)
facts["format"] = [torch_npu.get_npu_format(packed), packed.sum().item()]
facts["mismatch"] = error_of(torch.add, x, torch.ones(8).npu(1))

facts["loss"] = error_of(torch.tanh, x.npu(1))
facts["lost"] = error_of(lambda: torch.ones(2).npu(1))
facts["other card"] = x.abs().sum().item() > 0
print(json.dumps(facts), flush=True)
# torch_npu ends a process whose card is lost with an abort.
os._exit(0)
"""


@pytest.fixture(scope="module")
def facts() -> Any:
    """Return what the script saw, on cards 1 and 3 of 4 with 256 MiB each."""
    require_cards()
    printed = run_script(
        SCRIPT,
        SIMULATED_CANN_FAULTS=FAULTS,
        SIMULATED_CANN_CARDS="4",
        SIMULATED_CANN_MEMORY=str(1 << 28),
        ASCEND_RT_VISIBLE_DEVICES="1,3",
    )
    return json.loads(printed.splitlines()[-1])


def test_visible_cards_keep_their_identity(facts: Any) -> None:
    assert [uuid.rstrip("\0") for uuid in facts["uuids"]] == ["simulated-1", "simulated-3"]


def test_a_card_has_the_memory_that_a_variable_gives_it(facts: Any) -> None:
    assert facts["total"] == 1 << 28
    assert facts["too much"].startswith("OutOfMemoryError: NPU out of memory. Tried to allocate 1.00 GiB")


def test_a_rare_fault_is_in_the_call_of_its_number(facts: Any) -> None:
    assert facts["exp"] == [True, False, True]


def test_a_slow_kernel_keeps_its_stream_and_event_busy_and_no_other(facts: Any) -> None:
    assert facts["slow"] == [False, False, True]
    assert facts["waited"] == [True, True]


def test_a_late_error_comes_out_once_where_the_card_is_waited_for(facts: Any) -> None:
    first, second = facts["late"]
    assert "error code is 507015" in first
    assert second == ""


def test_a_tensor_in_an_internal_format_says_so_and_keeps_its_numbers(facts: Any) -> None:
    assert facts["format"] == [29, 256.0]


def test_a_card_cannot_read_the_memory_of_another(facts: Any) -> None:
    assert "found at least two devices, npu:0 and npu:1" in facts["mismatch"]


def test_a_lost_card_fails_from_then_on_and_no_other_card_does(facts: Any) -> None:
    assert "507010" in facts["loss"]
    assert "507010" in facts["lost"]
    assert facts["other card"]
