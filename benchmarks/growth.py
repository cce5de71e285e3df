"""How time and memory grow with records checked by two workers, ranks compared by an array of jobs, and steps watched.

    python benchmarks/growth.py [--only records ranks steps] [--records 2000 20000 200000] [--ranks 10 100 1024]
        [--steps 1000 10000 100000]

Each size runs once. What start-up takes is in the first size alone: a later row says what each record, rank or step
takes beyond those of the row before. Work that grows linearly has the same number in both rows, and what lists or sorts
everything once more for each item ten times as much in the last one. Records, tensors and models are small, so that
they take little and what comes on top of them shows. The full sizes take about half an hour of CPU time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster import write_runs
from dumps import Calls, write_records
from measure import Run, plugin_words, quote, run, scratch, table

#: How many ranks a job of the array compares, and of how many calls each.
RANKS_OF_A_JOB, CALLS_OF_A_RANK = 16, 100

SMALL_CALLS: Calls = (
    ("Functional.linear", [[16, 32], [8, 32], [8]], [16, 8]),
    ("Tensor.__mul__", [[16, 32], [16, 32]], [16, 32]),
)

TRAINING = """
import sys
import torch
from msprobe_hooks import watch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(4, 8)
with watch(model, optimizer, sys.argv[1]):
    for _ in range(int(sys.argv[2])):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
"""


def records(folder: Path, count: int) -> dict[str, Run]:
    """Check so many records of small calls by two workers, with a journal, and report from the journal."""
    dump, journal = folder / "dump.json", folder / "journal.jsonl"
    write_records(dump, SMALL_CALLS, count)
    words = ["-p", "xdist.plugin", "-n", "2", "--msprobe-device", "cpu", "--tb=no", "-rN"]
    done = run(plugin_words("--msprobe-dump", dump, f"--msprobe-journal={journal}", *words))
    return {"records checked, -n 2": done, "records reported from a journal": report([journal])}


def ranks(folder: Path, count: int) -> dict[str, Run]:
    """Compare two runs of so many ranks by an array of jobs, and report from their journals."""
    write_runs(folder, count, 1, CALLS_OF_A_RANK)
    sides = ("--msprobe-compare", folder / "target", "--msprobe-golden", folder / "golden", "--tb=no", "-rN")
    jobs = -(-count // RANKS_OF_A_JOB)
    journals = [folder / f"{number}.jsonl" for number in range(1, jobs + 1)]
    done = [
        run(plugin_words(*sides, f"--msprobe-shard={number}/{jobs}", f"--msprobe-journal={journal}"))
        for number, journal in enumerate(journals, 1)
    ]
    array = Run(sum(job.wall for job in done), sum(job.cpu for job in done), max(job.peak for job in done), "")
    return {f"ranks compared, {RANKS_OF_A_JOB} a job": array, "ranks reported from journals": report(journals)}


def steps(folder: Path, count: int) -> dict[str, Run]:
    """Watch a training of so many steps, and judge what was written."""
    training = run([sys.executable, "-c", TRAINING, folder, str(count)])
    judged = run(plugin_words("--msprobe-monitor", folder, "--tb=no", "-rN"))
    return {"steps watched": training, "steps judged": judged}


def report(journals: Sequence[Path]) -> Run:
    """Report from journals, with a JUnit file."""
    command = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main())"
    return run([sys.executable, "-c", command, "report", *journals, f"--junit={journals[0].with_suffix('.xml')}"])


def measured(case: Callable[[Path, int], dict[str, Run]], sizes: Sequence[int]) -> list[list[str]]:
    """Run a case at all sizes; return the rows of the table."""
    found: dict[str, list[Run]] = {}
    for size in sizes:
        folder = scratch() / "growth"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, done in case(folder, size).items():
            found.setdefault(name, []).append(done)
            print(f"  {size} {name}: CPU {done.cpu:.1f} s, {done.peak:.0f} MiB", file=sys.stderr, flush=True)
        shutil.rmtree(folder)
    rows = []
    for name, runs in found.items():
        seconds = further(sizes, [each.cpu * 1e3 for each in runs])
        memory = further(sizes, [each.peak * 1024 for each in runs])
        for size, each, milliseconds, kibibytes in zip(sizes, runs, seconds, memory, strict=True):
            what = [name, f"{size:,}".replace(",", " "), f"{each.cpu:.1f}", f"{each.peak:.0f}"]
            rows.append([*what, f"{milliseconds:.3f}", f"{kibibytes:.2f}"])
        if len(sizes) > 2:
            quote(f"{name}: each of {sizes[-1]} / each of {sizes[-2]}, CPU", seconds[-1] / seconds[-2], wanted="1")
    return rows


def further(sizes: Sequence[int], totals: Sequence[float]) -> list[float]:
    """Return what each item takes beyond those of the size before."""
    before = [(0, 0.0), *zip(sizes, totals, strict=True)]
    return [
        (total - less) / (size - fewer) for size, total, (fewer, less) in zip(sizes, totals, before[:-1], strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = {"records": records, "ranks": ranks, "steps": steps}
    parser.add_argument("--only", nargs="+", choices=cases, default=list(cases))
    parser.add_argument("--records", nargs="+", type=int, default=[2_000, 20_000, 200_000])
    parser.add_argument("--ranks", nargs="+", type=int, default=[10, 100, 1_024])
    parser.add_argument("--steps", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    options = parser.parse_args()

    rows = [row for name in options.only for row in measured(cases[name], getattr(options, name))]
    print(f"load {os.getloadavg()[0]:.1f}; peak is that of the largest process\n")
    print(table(["what", "how many", "CPU s", "peak MiB", "CPU ms of each further", "KiB of each further"], rows))


if __name__ == "__main__":
    main()
