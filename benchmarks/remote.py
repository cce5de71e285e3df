"""What a baseline elsewhere adds to a record, next to an echo of the same bytes over a plain execnet channel.

Both go over ssh to an sshd on a port of this machine, by turns in one run. execnet's ssh compresses, which its
specification cannot switch off; the other echo is the same channel over an ssh of our own words, which does not.
A record is an addition with its backward pass: two tensors there and one back, then one there and two back. Its work is
what the process there does, done in this one; the link is the rest of its time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import execnet
import torch
from measure import ROOT, quote, table

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import backward_record, forward_record
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.remote.messages import Open
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice
from pytest_msprobe.extensions.remote.server import Server

sys.path.insert(0, str(ROOT))
from tests.support.dumps.dump_files import forward, tensor
from tests.support.hosts.sshd import Host, ssh_host

_ECHO = """
while True:
    channel.send(channel.receive())
"""
_BOOTSTRAP = "import sys;exec(eval(sys.stdin.readline()))"


def trial_of(elements: int, device: RemoteDevice) -> Trial:
    """Return the trial of an addition of so many elements, whose inputs are drawn already."""
    x = tensor(elements, requires_grad=True)
    name = parse_api_name("Torch.add.0.forward")
    backward = backward_record(name.backward, {"input": [x], "output": [x, x]})
    call = Call(name, forward_record(name.forward, forward(x, x)), backward, Path())
    trial = Replay(call, ReplayConfig(CpuDevice(), Policy.load("default"), TorchFramework(), baseline=device)).trial
    _ = trial.target, trial.grad_outputs
    return trial


class Here(RemoteDevice):
    """What a process elsewhere does with a record, done in this one: all but the link."""

    hardware = "cpu"

    def __init__(self) -> None:
        super().__init__("popen")
        self._server = Server()
        self._server.answer(Open("pytorch", "cpu"), [])

    def ask(self, request: Any, answer: Any, blobs: Any = (), *, limit: float = 0) -> Any:
        """Have the request answered here."""
        reported, found = self._server.answer(request, [bytearray(blob) for blob in blobs])
        return reported, [bytearray(blob) for blob in found]


def seconds(elements: int, device: RemoteDevice) -> float:
    """Return the seconds of one record, forward and backward, on a device."""
    trial = trial_of(elements, device)
    started = time.perf_counter()
    _ = trial.remote_gradients
    return time.perf_counter() - started


def echo(channel: execnet.Channel, size: int) -> float:
    """Return the seconds of the same bytes: three tensors there and back, in two messages as of a record."""
    parts = [torch.rand(size * count // 4).numpy().tobytes() for count in (2, 1)]
    started = time.perf_counter()
    for part in parts:
        channel.send(part)
        channel.receive()
    return time.perf_counter() - started


def uncompressed(host: Host) -> str:
    """Return execnet's specification of a host by an ssh that does not compress."""
    # What execnet appends stands behind the comment.
    return f"popen//python=ssh -F {host.config} {host.name} '{sys.executable} -c \"{_BOOTSTRAP}\" #'"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bytes", type=int, nargs="+", default=[2**12, 2**16, 2**20, 2**24, 2**26])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, ssh_host(Path(folder), "elsewhere") as host:
        device = RemoteDevice(f"{host.spec()}//device=cpu")
        device.count()
        device.activate(0)
        group = execnet.Group()
        channels = [group.makegateway(spec).remote_exec(_ECHO) for spec in (host.spec(), uncompressed(host))]
        here = Here()
        for size in options.bytes:
            found: list[list[float]] = []
            for _ in range(options.rounds + 1):
                echoes = [echo(channel, size) for channel in channels]
                found.append([seconds(size // 4, device), seconds(size // 4, here), *echoes])
            elsewhere, work, plain, bare = (statistics.median(column[1:]) for column in zip(*found, strict=True))
            milliseconds = [f"{each * 1000:.1f}" for each in (elsewhere, work, plain, bare)]
            ratios = [
                f"{elsewhere / plain:.2f}",
                f"{(elsewhere - work) / plain:.2f}",
                f"{(elsewhere - work) / bare:.2f}",
            ]
            quote(f"a record of {size / 2**20:g} MiB elsewhere, without its work / echo", (elsewhere - work) / plain)
            rows.append([f"{size / 2**20:g} MiB", *milliseconds, *ratios])
        group.terminate(timeout=1)
        device.close()
    print(f"medians of {options.rounds} rounds in ms, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    titles = ["a tensor", "record", "its work", "echo, ssh -C", "echo, ssh", "record / echo -C"]
    titles += ["link / echo -C", "link / echo"]
    print(table(titles, rows))


if __name__ == "__main__":
    main()
