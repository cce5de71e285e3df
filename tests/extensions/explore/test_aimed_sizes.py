"""Sizes just over what units of work hold are among those explored, and a failure says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.extensions.explore.explored_tally import AIMED, EXPLORED, ExploredTally
from tests.support.dumps.dump_files import forward
from tests.support.dumps.dump_files import tensor as element
from tests.support.replays.devices import Faulty
from tests.support.replays.exploring import explored

Change = Callable[[torch.Tensor], torch.Tensor]


def without_rest(unit: int) -> Change:
    """Return what loses the elements beyond the last whole unit of rows that have one."""

    def change(result: torch.Tensor) -> torch.Tensor:
        whole = result.shape[-1] // unit * unit
        if whole:
            result[..., whole:] = 7
        return result

    return change


def without_what_16_bits_count(result: torch.Tensor) -> torch.Tensor:
    result.view(-1)[2**16 :] = 7
    return result


@pytest.mark.parametrize("unit", [8, 16, 32, 64, 128])
def test_a_fault_beyond_whole_units_is_found_at_the_least_such_size(dump_of: Any, unit: int) -> None:
    dump = dump_of({"Torch.exp.0.forward": forward(element(32, 256))})
    finding = explored(dump, "Torch.exp.0.forward", Faulty(without_rest(unit)), examples=8).finding
    assert finding is not None
    (x,) = (tensor for _, tensor in finding.replay.trial.subject.arguments.tensors())
    assert x.shape[-1] % unit == 1
    if finding.why:
        assert finding.why == f"size 256 as {unit + 1}, just over a multiple of {unit}"


@pytest.mark.parametrize(
    ("record", "arguments"), [("Torch.exp", [element(32, 256)]), ("Torch.mm", [element(32, 64), element(64, 48)])]
)
def test_a_fault_beyond_2_to_the_16_elements_is_found(dump_of: Any, record: str, arguments: Any) -> None:
    dump = dump_of({f"{record}.0.forward": forward(*arguments)})
    finding = explored(dump, f"{record}.0.forward", Faulty(without_what_16_bits_count), examples=12).finding
    assert finding is not None
    assert finding.why.endswith("just over 2^16 elements")


def test_the_cpu_passes_at_these_sizes_which_are_counted(dump_of: Any) -> None:
    dump = dump_of({"Functional.softmax.0.forward": forward(element(32, 256), dim={"type": "int", "value": -1})})
    exploration = explored(dump, "Functional.softmax.0.forward", CpuDevice(), examples=12)
    assert exploration.finding is None
    assert exploration.aimed == 4
    tally = ExploredTally()
    tally.add({EXPLORED: exploration.judged, AIMED: exploration.aimed})
    assert tally.lines()[1] == "4 had a size just over 128 or 2^16 elements; none 2^31, which take gigabytes"
