"""A card that computes beside the CPU, and one whose calls are waited for at once: the time that checks take, by turns.

The card is the simulated NPU: each of its products takes it some seconds of sleep, beside the CPU's own work for it. A
record is a ``linear`` without bias, forward and backward, which are three products on the card.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import table

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.check import check_call
from tests.support.dumps import forward, tensor, write_dump
from tests.support.npu import PACKAGE

POLICY = Policy.load("default")


class Awaited(NpuDevice):
    """The card with a call of its own, so that each is waited for before anything else is done."""

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call and wait, as ever."""
        return super().call(func, args, kwargs, record=record)


def linear(folder: Path, size: int) -> Call:
    """Write and read a dump of one call, whose tensors have ``size`` rows and columns."""
    x = tensor(size, size, requires_grad=True)
    records = {
        "Functional.linear.0.forward": forward(x, x),
        "Functional.linear.0.backward": {"input": [x], "output": [x, x]},
    }
    return read_call(read_dump(write_dump(folder, records)), "Functional.linear.0.forward")


def seconds(call: Call, device: Device) -> tuple[float, float]:
    """Return how long a check of both directions takes, by the clock and of the CPU."""
    started, cpu = time.perf_counter(), time.process_time()
    result = check_call(call, device=device, policy=POLICY)
    assert result.backward is not None
    assert {result.forward.verdict.outcome, result.backward.verdict.outcome} == {"pass"}
    return time.perf_counter() - started, time.process_time() - cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2048, help="of the matrices")
    parser.add_argument("--slow", type=float, nargs="+", default=[0.0, 0.2, 0.5, 1.0], help="seconds of a product")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    os.environ["SIMULATED_NPU_FAULTS"] = "mm=slow"
    sys.path.insert(0, str(PACKAGE))
    torch.set_num_threads(1)
    devices = {"awaited": Awaited(), "beside": NpuDevice()}
    for device in devices.values():
        device.activate(0)
    rows = []
    with TemporaryDirectory() as folder:
        call = linear(Path(folder), options.size)
        for slow in options.slow:
            os.environ["SIMULATED_NPU_SLOW"] = str(slow)
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in devices}
            for _ in range(options.turns):
                for name, device in devices.items():
                    found[name].append(seconds(call, device))
            walls = {name: statistics.median(wall for wall, _ in each) for name, each in found.items()}
            cpus = {name: statistics.median(cpu for _, cpu in each) for name, each in found.items()}
            saved = walls["awaited"] - walls["beside"]
            numbers = (3 * slow, *walls.values(), *cpus.values(), saved)
            rows.append([f"{number:.2f}" for number in numbers])
    print(f"{options.size} square, medians of {options.turns} turns, load {os.getloadavg()[0]:.1f}\n")
    titles = ["the card's seconds", "awaited s", "beside s", "awaited CPU s", "beside CPU s", "saved s"]
    print(table(titles, rows))


if __name__ == "__main__":
    main()
