"""A card that computes beside the CPU: what that saves, and what a look-ahead to the next record could save beyond it.

``saved`` checks a ``linear`` without bias, forward and backward, on the simulated NPU; each of its three products takes
it some seconds of sleep beside the CPU's own work for it. By turns with a card whose calls are waited for at once.
``bound`` checks one decoder layer of a Llama on the CPU, and tells from the times of its target, golden and all else
how long a card that is so many times as fast would have the CPU wait.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import ROOT, quote, table

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.check_call import check_call
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.screening.matmul_structure import structure_of
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
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


def saved(size: int, slow: Sequence[float], turns: int) -> str:
    """Return the table of what checks take on a card that is waited for at once and on one that is not."""
    os.environ["SIMULATED_NPU_FAULTS"] = "mm=slow"
    sys.path.insert(0, str(PACKAGE))
    devices = {"awaited": Awaited(), "beside": NpuDevice()}
    for device in devices.values():
        device.activate(0)
    rows = []
    with TemporaryDirectory() as folder:
        call = linear(Path(folder), size)
        for each in slow:
            os.environ["SIMULATED_NPU_SLOW"] = str(each)
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in devices}
            for _ in range(turns):
                for name, device in devices.items():
                    found[name].append(seconds(call, device))
            walls = {name: statistics.median(wall for wall, _ in times) for name, times in found.items()}
            cpus = {name: statistics.median(cpu for _, cpu in times) for name, times in found.items()}
            gained = walls["awaited"] - walls["beside"]
            rows.append([f"{number:.2f}" for number in (3 * each, *walls.values(), *cpus.values(), gained)])
            quote(f"a card's {3 * each:g} s beside golden: saved", gained, unit="s")
    titles = ["the card's seconds", "awaited s", "beside s", "awaited CPU s", "beside CPU s", "saved s"]
    return table(titles, rows)


@dataclass
class Times(SimDevice):
    """The CPU as target; what it and golden take of the call at hand, by direction, in CPU seconds."""

    target: dict[str, float] = field(default_factory=dict)
    golden: dict[str, float] = field(default_factory=dict)

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call, and note how long that takes."""
        started = time.process_time()
        result = func(*args, **kwargs)
        self.target[record.rpartition(".")[2]] = time.process_time() - started
        return result


def waited(call: Call, faster: Sequence[float]) -> tuple[float, list[tuple[float, float]]]:
    """Return the CPU seconds of a call's check without its target, and per card for how long it is waited for.

    That is at once, and beside golden.
    """
    device = Times()
    started = time.process_time()
    replay = Replay(call, ReplayConfig(device, POLICY, TorchFramework()))
    subject = replay.trial.subject
    for direction, name in (("forward", "golden"), ("backward", "golden_gradients")):
        if direction == "backward" and call.backward is not None:
            _ = replay.forward(), replay.trial.grad_outputs
        before = time.process_time()
        if direction == "forward" or call.backward is not None:
            getattr(replay.trial, name)
        device.golden[direction] = time.process_time() - before
    _ = replay.backward() if call.backward is not None else replay.forward()
    taken = time.process_time() - started - sum(device.target.values())
    hidden = dict(device.golden)
    if structure_of(subject.operation, subject.arguments) is None:
        hidden["forward"] = 0.0
    waits = []
    for factor in faster:
        card = {direction: target / factor for direction, target in device.target.items()}
        beside = sum(max(0.0, needed - hidden[direction]) for direction, needed in card.items())
        waits.append((sum(card.values()), beside))
    return taken, waits


def bound(sizes: Sequence[str], faster: Sequence[float]) -> str:
    """Return the table of what the CPU waits for cards of several speeds while it checks a decoder layer."""
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "benchmarks/decoder_layer_step.py", folder, *sizes], check=True)
        dump = read_dump(Path(folder) / "step0" / "rank" / "dump.json")
        names = [name for name in dump.api_names if name.endswith(".forward")]
        found = [waited(read_call(dump, name), faster) for name in names]
    taken = sum(each for each, _ in found)
    rows = []
    for place, factor in enumerate(faster):
        at_once, beside = (sum(waits[place][kind] for _, waits in found) for kind in (0, 1))
        rows.append([f"{factor:g}", *(f"{each:.3f} ({each / (taken + each):.1%})" for each in (at_once, beside))])
        share = 100 * beside / (taken + beside)
        quote(f"a card {factor:g} times as fast: what a look-ahead could save of a check", share, unit="%")
    titles = ["times as fast as the CPU", "waited for at once s", "beside golden s: the most a look-ahead saves"]
    return f"{len(found)} calls, {taken:.1f} CPU s without their targets\n\n{table(titles, rows)}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("saved", "bound"))
    parser.add_argument("--size", type=int, default=1024, help="of the matrices, or of hidden states")
    parser.add_argument("--slow", type=float, nargs="+", default=[0.0, 0.1, 0.3, 1.0], help="seconds of a product")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--faster", type=float, nargs="+", default=[1, 10, 100, 1000], help="speeds of cards")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "saved":
        told = saved(options.size, options.slow, options.turns)
    else:
        size = options.size
        sizes = {"tokens": size // 4, "hidden": size, "intermediate": size * 11008 // 4096, "vocabulary": size * 8}
        sizes["layers"] = 1
        words = [word for name, number in sizes.items() for word in (f"--{name}", str(number))]
        told = bound([*words, "--steps", "0"], options.faster)
    print(f"{told}\n\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
