"""``--msprobe-overflow-replay``: overflow that the CPU shows too is normal, any other is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

Check = Callable[..., Any]
Json = dict[str, Any]

REPLAY = ("--msprobe-overflow=dump.json", "--msprobe-overflow-replay")


@pytest.fixture
def overflowing(element: Callable[..., Json], forward: Callable[..., Json]) -> Json:
    """Return calls of which the first overflows anywhere, the second nowhere, and the third did not overflow."""
    bad = element(4, low=float("inf"), high=float("inf"))
    return {
        "Torch.exp.0.forward": forward(element(4, low=100.0, high=200.0), output=[bad]),
        "Torch.tanh.0.forward": forward(element(4), output=[bad]),
        "Torch.sin.0.forward": forward(element(4)),
    }


def test_what_overflows_on_both_is_normal(write_dump: Check, overflowing: Json, check: Check) -> None:
    del overflowing["Torch.tanh.0.forward"]
    write_dump(overflowing)
    checked = check(*REPLAY, "--msprobe-device=cpu")
    assert checked.outcomes == {"Torch.exp.0.forward": "passed"}
    assert checked.cases["Torch.exp.0.forward"].properties["msprobe.overflow"] == "normal"
    assert "replayed: 1 normal" in checked.output


def test_what_overflows_on_the_device_alone_fails(
    write_dump: Check, overflowing: Json, check: Check, make_device: Check
) -> None:
    make_device("if 'tanh' in record:\n    result[1] = float('inf')\n    result[2] = float('nan')")
    write_dump(overflowing)
    checked = check(*REPLAY, "--msprobe-device=faulty", "--msprobe-seed=3")
    assert checked.outcomes == {"Torch.exp.0.forward": "passed", "Torch.tanh.0.forward": "failed"}
    text = checked.cases["Torch.tanh.0.forward"].text
    assert "abnormal overflow: the device overflows, the CPU does not" in text
    assert "device: 1 inf, 1 nan of 4 elements; CPU: all finite" in text
    assert "replayed: 1 abnormal, 1 normal" in checked.output or "replayed: 1 normal, 1 abnormal" in checked.output
    command = text.rpartition("Run this item alone: ")[2].split()
    assert check(*command[1:]).outcomes == {"Torch.tanh.0.forward": "failed"}


def test_what_overflows_on_the_cpu_alone_fails(
    write_dump: Check, overflowing: Json, check: Check, make_device: Check
) -> None:
    make_device("result = result.clamp(max=1.0)")
    write_dump(overflowing)
    text = check(*REPLAY, "--msprobe-device=faulty").cases["Torch.exp.0.forward"].text
    assert "abnormal: the CPU overflows, the device does not" in text


def test_an_overflow_that_rebuilt_inputs_do_not_show_is_skipped(
    write_dump: Check, overflowing: Json, check: Check
) -> None:
    write_dump(overflowing)
    checked = check(*REPLAY, "--msprobe-device=cpu", "-rs")
    assert checked.outcomes["Torch.tanh.0.forward"] == "skipped"
    assert "the recorded overflow is not reproduced by rebuilt inputs" in checked.output


def test_recorded_tensors_are_used_and_a_lost_overflow_is_a_warning(
    write_dump: Check, element: Check, forward: Check, check: Check, pytester: Any
) -> None:
    (pytester.path / "dump_tensor_data").mkdir()
    records = {}
    for api, values in (("exp", [1.0, 500.0]), ("tanh", [1.0, 2.0])):
        file = f"Torch.{api}.0.forward.input.0.pt"
        torch.save(torch.tensor(values), pytester.path / "dump_tensor_data" / file)
        given = element(2, low=0.0, high=1.0, data_name=file)
        records[f"Torch.{api}.0.forward"] = forward(given, output=[element(2, high=float("inf"))])
    write_dump(records, task="tensor")
    checked = check(*REPLAY, "--msprobe-device=cpu")
    levels = {name: case.properties["msprobe.overflow"] for name, case in checked.cases.items()}
    assert levels == {"Torch.exp.0.forward": "normal", "Torch.tanh.0.forward": "not reproduced"}
    assert "reproduce the overflow neither on the device nor on the CPU" in checked.output


def test_a_device_that_raises_fails(write_dump: Check, overflowing: Json, check: Check, make_device: Check) -> None:
    make_device("raise RuntimeError('broken kernel')")
    write_dump(overflowing)
    checked = check(*REPLAY, "--msprobe-device=faulty")
    assert "the API raises on the device, but not on the CPU" in checked.cases["Torch.exp.0.forward"].text


def test_float8_results_are_compared_as_well(write_dump: Check, element: Check, forward: Check, check: Check) -> None:
    dtype = {"type": "torch.dtype", "value": "torch.float8_e5m2"}
    bad = element(4, dtype="float8_e5m2", high=float("inf"))
    write_dump({"Tensor.to.0.forward": forward(element(4, low=1e8, high=1e9), dtype, output=[bad])})
    assert check(*REPLAY, "--msprobe-device=cpu").outcomes == {"Tensor.to.0.forward": "passed"}


def test_a_cpu_without_the_kernel_is_a_skip_that_says_so(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    bad = element(4, dtype="float8_e5m2", high=float("inf"))
    write_dump({"Torch.exp.0.forward": forward(element(4, dtype="float8_e5m2"), output=[bad])})
    checked = check(*REPLAY, "--msprobe-device=cpu", "-rs")
    assert checked.outcomes == {"Torch.exp.0.forward": "skipped"}
    assert "the CPU cannot compute a golden result" in checked.output


def test_communication_is_skipped(check: Check) -> None:
    example = Path(__file__).parents[4] / "examples" / "overflow" / "step0"
    checked = check(f"--msprobe-overflow={example}", "--msprobe-overflow-replay", "--msprobe-device=cpu")
    assert checked.wrong == set()
    assert "collective communication needs its other ranks" in checked.output


def test_a_malformed_record_fails(write_dump: Check, overflowing: Json, check: Check) -> None:
    overflowing["Torch.exp.0.forward"]["input_args"] = "Infinity"
    write_dump(overflowing)
    text = check(*REPLAY, "--msprobe-device=cpu").cases["Torch.exp.0.forward"].text
    assert '$.data["Torch.exp.0.forward"].input_args: expected an array, found a string' in text


def test_dumps_of_other_frameworks_are_refused(write_dump: Check, overflowing: Json, pytester: Any) -> None:
    write_dump(overflowing, framework="mindspore")
    result = pytester.runpytest_inprocess(*REPLAY)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "recorded with mindspore, which --msprobe-overflow-replay cannot replay" in "\n".join(result.errlines)
