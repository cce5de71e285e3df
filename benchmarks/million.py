"""A million judgements of a healthy machine: dumps checked under seed after seed, counted by API.

    python benchmarks/million.py [FOLDER ...] [--seeds 0 1 2 3 4] [--wanted 1000000] [--log FILE]

Judged are the dumps of the folders, healthy ones of tests/data, and torch's own operators in each dtype and task. A
judgement is the verdict on one record, forward or backward, from inputs of one seed; with recorded tensors it counts
under the first seed alone, as it is the same under each. Each alarm is printed as it comes. What is finished is a line
of the log, which a run that is started again does not repeat.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from dumps import unpacked
from measure import ROOT, SCRATCH, quote, table

from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.errors import DumpError
from pytest_msprobe import check_dump
from pytest_msprobe.errors import UserError
from pytest_msprobe.extensions.operators.sweep import TASKS, folder_name

HEALTHY = ("dumps", "verdict_quality")
DTYPES = ("float32", "bfloat16", "float16", "float64", "complex64", "int64", "bool")
SHOWN = 40


class Part(NamedTuple):
    """A dump under one seed."""

    dump: Path
    seed: int


class Judged(msgspec.Struct):
    """What came of a part: how many verdicts each API had, what was skipped why, and the reason of each alarm."""

    dump: str
    seed: int
    verdicts: dict[str, int]
    skips: dict[str, int]
    alarms: dict[str, str]

    def count(self) -> int:
        """Return the number of judgements."""
        return sum(self.verdicts.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--wanted", type=int, default=1_000_000, metavar="N", help="stop at so many judgements")
    parser.add_argument("--samples", type=int, default=40, metavar="N", help="of each of torch's operators, at most")
    parser.add_argument("--log", type=Path, default=SCRATCH / "million.jsonl")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()

    options.log.parent.mkdir(parents=True, exist_ok=True)
    healthy = [unpacked(ROOT / "tests/data" / name) for name in HEALTHY]
    folders = [*healthy, *options.folders, operators(options.samples)]
    dumps = [dump for folder in folders for dump in dumps_of(folder)]
    parts = [
        Part(dump.path, seed)
        for seed in options.seeds
        for dump in dumps
        if seed == options.seeds[0] or dump.task != "tensor"
    ]
    finished = {Part(Path(each.dump), each.seed): each for each in read_log(options.log)}
    found = [finished[part] for part in parts if part in finished]
    for judged in judgements([part for part in parts if part not in finished], found, options):
        found.append(judged)
        with options.log.open("ab") as log:
            log.write(msgspec.json.encode(judged) + b"\n")
    report(found, len(parts))
    raise SystemExit(any(judged.alarms for judged in found))


def operators(samples: int) -> Path:
    """Return the folder of torch's operators, recorded on this machine where they are not there yet."""
    folder = SCRATCH / f"torch_operators_{torch.__version__}_{samples}"
    if not folder.exists():
        from pytest_msprobe.extensions.operators.database import find_operators
        from pytest_msprobe.extensions.operators.recorder import record_operators

        known = find_operators((), ())
        made = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(made, ignore_errors=True)
        for dtype in DTYPES:
            for task in TASKS:
                record_operators(made / folder_name(dtype, task), known, dtype, task, samples)
        made.rename(folder)
    return folder


def dumps_of(folder: Path) -> Iterator[Dump]:
    """Yield the dumps of PyTorch in a folder; what cannot be read is one of the files by which tests show that."""
    for path in sorted(folder.rglob("dump.json")):
        with suppress(DumpError):
            dump = read_dump(path)
            if dump.framework == "pytorch":
                yield dump


def judgements(parts: Iterable[Part], found: Iterable[Judged], options: argparse.Namespace) -> Iterator[Judged]:
    """Yield what comes of each part, until as many verdicts are found as are wanted."""
    count = sum(judged.count() for judged in found)
    waiting = iter(parts)
    with ProcessPoolExecutor(options.processes, initializer=one_thread, max_tasks_per_child=8) as pool:
        running = {pool.submit(judge, part) for part in islice(waiting, options.processes)}
        while running:
            done = next(as_completed(running))
            running.remove(done)
            judged = done.result()
            count += judged.count()
            for record, reason in judged.alarms.items():
                print(f"alarm: {judged.dump}::{record}, seed {judged.seed}: {reason}", flush=True)
            print(f"{count:>9,} judgements; {judged.dump}, seed {judged.seed}", file=sys.stderr, flush=True)
            yield judged
            part = next(waiting, None) if count < options.wanted else None
            if part is not None:
                running.add(pool.submit(judge, part))


def one_thread() -> None:
    """Leave Ctrl-C to the parent; more threads would mostly wait for each other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def judge(part: Part) -> Judged:
    """Check a dump under a seed on the CPU."""
    verdicts, skips, alarms = Counter[str](), Counter[str](), dict[str, str]()
    try:
        for checked in check_dump(part.dump, device="cpu", seed=part.seed):
            if checked.outcome == "skip":
                skips[checked.result.reason] += 1
                continue
            verdicts[checked.name.rsplit(".", 2)[0]] += 1
            if checked.outcome != "pass":
                alarms[checked.name] = f"{checked.outcome}: {checked.result.reason}"
    except (DumpError, UserError) as error:
        skips[str(error)] += 1
    return Judged(str(part.dump), part.seed, verdicts, skips, alarms)


def read_log(path: Path) -> Iterator[Judged]:
    """Yield what a run before this one has finished; a line that was not written to its end is left out."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line, type=Judged)


def report(found: list[Judged], parts: int) -> None:
    """Print how many judgements each API had, and what was left out."""
    verdicts, skips = Counter[str](), Counter[str]()
    for judged in found:
        verdicts.update(judged.verdicts)
        skips.update(judged.skips)
    alarms = Counter(name.rsplit(".", 2)[0] for judged in found for name in judged.alarms)
    quote(f"alarms in {verdicts.total()} judgements of a healthy CPU", alarms.total(), unit="", wanted="0")
    print(f"{len(found)} of {parts} parts, {len(verdicts)} APIs, torch {torch.__version__}\n")
    print(table(["API", "judgements", "alarms"], [[api, count, alarms[api]] for api, count in verdicts.most_common()]))
    if skips:
        print(table(["skipped because", "records"], skips.most_common(SHOWN)))


if __name__ == "__main__":
    main()
