"""Crashes, hangs and exhausted memory planted among healthy items, and a controller that is killed and resumed.

Checks that each planted fault is finished as what it is, every other item as in a run without faults, each item once,
and that no process outlives a run. Ends with status 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from measure import quote, table

from pytest_msprobe.journal import Entry, read_journal

# What the device of conftest.py does, and how the item must end.
FAULTS = {
    "segfault": "crash",
    "kill": "crash",
    "exit": "crash",
    "hang": "timeout",
    "raised oom": "oom",
    "real oom": "oom",
}

CONFTEST = """
import ctypes, json, os, signal
from pathlib import Path

from pytest_msprobe.devices.sim import SimDevice

PLAN = json.loads(Path(__file__).with_name("plan.json").read_text())


def hang():
    # PyDLL keeps the interpreter's lock: neither an alarm nor another thread gets a turn.
    libc = ctypes.PyDLL(None)
    libc.sigprocmask(0, ctypes.byref(ctypes.c_ulong(2**64 - 1)), None)
    while True:
        libc.sleep(1000)


def raise_out_of_memory():
    import torch

    raise torch.OutOfMemoryError("Tried to allocate 900.00 GiB")


def take_all_memory():
    import torch

    torch.empty(2**56, dtype=torch.uint8)


DEEDS = {
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(7),
    "hang": hang,
    "raised oom": raise_out_of_memory,
    "real oom": take_all_memory,
}


class ChaosDevice(SimDevice):
    name = "chaos"

    def call(self, func, args, kwargs, *, record):
        if record in PLAN:
            os.write(2, f"driver: {PLAN[record]} ahead\\n".encode())
            DEEDS[PLAN[record]]()
        return super().call(func, args, kwargs, record=record)


def pytest_msprobe_register_devices(registry):
    registry.add(ChaosDevice())
"""

# Long enough for a process that the system is ending.
_GONE_SECONDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10, help="how often the controller is killed")
    parser.add_argument("--seed", type=int, default=0, help="which items fail, how, and when the controller is killed")
    parser.add_argument("--timeout", type=float, default=2.0, help="--msprobe-timeout of the runs")
    parser.add_argument("options", nargs="*", default=["-n", "2"], help="after --: options of the runs (default: -n 2)")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        trial = Trial(Path(folder), options)
        problems = trial.run()
    quote("planted crashes, hangs and kills that ended otherwise than planned", len(problems), unit="", wanted="0")
    print(*problems, f"{len(problems)} problems" if problems else "as planned", sep="\n")
    raise SystemExit(bool(problems))


class Trial:
    """One dump, checked without faults and with them."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.random = random.Random(options.seed)
        self.mark = uuid.uuid4().hex
        names = write_dump(folder / "dump.json", options.items)
        chosen = self.random.sample(names, options.faults)
        kinds = list(FAULTS)
        self.plan = {name: kinds[number % len(kinds)] for number, name in enumerate(chosen)}
        (folder / "conftest.py").write_text(CONFTEST)

    def run(self) -> list[str]:
        """Run both and return what is not as it must be."""
        self._write_plan({})
        started = time.monotonic()
        self._start("--msprobe-journal", "calm.jsonl").wait()
        calm_seconds = time.monotonic() - started
        self._write_plan(self.plan)
        started = time.monotonic()
        leftovers, resumed = self._run_with_kills()
        seconds = time.monotonic() - started

        calm, wild = (read_journal(self.folder / f"{name}.jsonl").entries for name in ("calm", "wild"))
        lines = [msgspec.json.decode(line).get("id") for line in (self.folder / "wild.jsonl").read_bytes().splitlines()]
        problems = [f"{leftovers} processes outlived a run"] if leftovers else []
        problems += [
            f"{name} was finished {count} times" for name, count in Counter(lines).items() if name and count > 1
        ]
        problems += [f"{name} was not finished" for name in calm if name not in wild]
        problems += list(self._differences(calm, wild))
        self._print(wild, calm_seconds, seconds, resumed)
        return problems

    def _differences(self, calm: dict[str, Entry], wild: dict[str, Entry]) -> Iterator[str]:
        for name, entry in wild.items():
            kind = self.plan.get(entry.result.record)
            if kind is None:
                if _verdict(entry) != _verdict(calm[name]):
                    yield f"{name}: {_verdict(entry)} with faults, {_verdict(calm[name])} without"
            elif entry.outcome != FAULTS[kind]:
                yield f"{name}: {kind} was finished as {entry.outcome}: {entry.result.verdict.reason}"
            elif f"driver: {kind} ahead" not in entry.result.verdict.reason:
                yield f"{name}: its captured stderr is missing: {entry.result.verdict.reason}"

    def _print(self, wild: dict[str, Entry], calm_seconds: float, seconds: float, resumed: int) -> None:
        planted = Counter(self.plan.values())
        found = Counter((self.plan.get(entry.result.record, "none"), entry.outcome) for entry in wild.values())
        rows = [
            [kind, str(planted[kind] or ""), outcome, str(count)] for (kind, outcome), count in sorted(found.items())
        ]
        words = " ".join(self.options.options)
        print(f"{self.options.items} items, {len(self.plan)} faults, `{words}`, resumed {resumed} times")
        print(f"{calm_seconds:.0f} s without faults, {seconds:.0f} s with them\n")
        print(table(["planted", "how many", "finished as", "items"], rows), end="\n\n")

    def _run_with_kills(self) -> tuple[int, int]:
        """Run to the end, killing the controller at random moments; return what outlived it and the resumed runs."""
        journal, leftovers, resumed = self.folder / "wild.jsonl", 0, 0
        moments = sorted(self.random.randrange(self.options.items * 95 // 100) for _ in range(self.options.kills))
        while True:
            word = "--msprobe-resume" if _lines(journal) else "--msprobe-journal"
            journal.unlink(missing_ok=True) if word == "--msprobe-journal" else None
            process = self._start(word, journal.name)
            while process.poll() is None:
                if moments and _lines(journal) > moments[0]:
                    del moments[0]
                    time.sleep(self.random.uniform(0, 1))
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.02)
            status = process.wait()
            leftovers += self._left_over()
            if status != -signal.SIGKILL:
                return leftovers, resumed
            resumed += 1

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"),
                    *("-p", "no:hypothesispytest", "--msprobe-dump=dump.json", "--msprobe-device=chaos"),
                    *(f"--msprobe-timeout={self.options.timeout}", *self.options.options, *words),
                ],
                cwd=self.folder,
                env=os.environ | {"CHAOS": self.mark, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)},
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    def _left_over(self) -> int:
        give_up = time.monotonic() + _GONE_SECONDS
        while (count := len(list(_marked(self.mark)))) and time.monotonic() < give_up:
            time.sleep(0.05)
        return count

    def _write_plan(self, plan: dict[str, str]) -> None:
        (self.folder / "plan.json").write_text(json.dumps(plan))


def write_dump(path: Path, count: int) -> list[str]:
    """Write forward records of small calls and return their names."""
    names = [f"{('Torch.add', 'Torch.mul', 'Functional.softmax')[i % 3]}.{i}.forward" for i in range(count)]
    records = {name: record(name) for name in names}
    envelope = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**envelope, "data": records}))
    return names


def record(name: str) -> dict[str, Any]:
    """Return the body of a record of one of three APIs."""
    statistics = {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 9.0, "requires_grad": False}
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [16, 16], **statistics}
    softmax = name.startswith("Functional")
    return {
        "input_args": [tensor] if softmax else [tensor, tensor],
        "input_kwargs": {"dim": {"type": "int", "value": -1}} if softmax else {},
        "output": [tensor],
    }


def _verdict(entry: Entry) -> tuple[object, ...]:
    verdict = entry.result.verdict
    return entry.outcome, verdict.standard, verdict.margin, dict(verdict.metrics)


def _lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _marked(mark: str) -> Iterator[int]:
    """Yield the processes that have this mark in their environment; those that are dead have none."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"CHAOS={mark}".encode() in path.read_bytes():
                yield int(path.parent.name)
        except OSError:
            continue


if __name__ == "__main__":
    main()
