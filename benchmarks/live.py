"""What live checks cost: per record, next to a check of the same records from a tensor dump, and a step with a budget.

    python benchmarks/live.py [--repeat 3] [--steps 40]

The GPT-2-like model of ``recording.py``, forward and backward. "From a dump" is reading each record and its tensors and
judging it, in this process; writing the dump is not in it. Live is a checked step less a plain one. Times are CPU
times of this process with one thread, the median over repetitions that alternate; a budget itself counts wall time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import quote
from recording import BATCH, GPT2, SEQUENCE, VOCABULARY

import pytest_msprobe
from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework


def step(model, ids):
    """Run forward and backward."""
    model.zero_grad()
    F.cross_entropy(model(ids).view(-1, VOCABULARY), ids.view(-1)).backward()


def seconds(work):
    """Return the CPU time that something takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def from_dump(path):
    """Check a dump and return the number of records."""
    setup, count = ReplayConfig(CpuDevice(), Policy.load("default"), TorchFramework()), 0
    dump = read_dump(find_dumps(path)[0])
    for name in dump.api_names:
        if name.endswith(".forward"):
            replay = Replay(read_call(dump, name), setup)
            results = [replay.forward()] + ([replay.backward()] if replay.call.backward else [])
            count += len(results)
    return count


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, ids = GPT2(), torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    per_record, ratios = {"live": [], "dump": []}, []
    for _ in range(arguments.repeat + 1):
        plain = seconds(lambda: step(model, ids))
        with pytest_msprobe.live(per_api=None) as checks:
            checked = seconds(lambda: step(model, ids))
        per_record["live"].append((checked - plain) / checks.counts.total())
        with tempfile.TemporaryDirectory() as folder:
            with record(Path(folder, "dump"), task="tensor"):
                step(model, ids)
            began = time.process_time()
            count = from_dump(Path(folder, "dump"))
            per_record["dump"].append((time.process_time() - began) / count)
    live, dump = (statistics.median(times[1:]) * 1e3 for times in per_record.values())
    quote("a record checked live / from a dump", live / dump, wanted="at most 1.5")
    print(f"everything checked: live {live:.2f} ms per record, from a dump {dump:.2f} ms, ratio {live / dump:.2f}")
    for share in (0.2, 0.05):
        ratios = []
        for _ in range(arguments.repeat):
            plain = seconds(lambda: [step(model, ids) for _ in range(arguments.steps)])
            with pytest_msprobe.live(share=share, per_api=None) as checks:
                budgeted = seconds(lambda: [step(model, ids) for _ in range(arguments.steps)])
            ratios.append(budgeted / plain)
        quote(f"a step with share={share} / a plain one", statistics.median(ratios), wanted="at most 1.3")
        print(f"share={share}: a step takes {statistics.median(ratios):.2f} x, {checks.counts.total()} records checked")


if __name__ == "__main__":
    main()
