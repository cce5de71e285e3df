"""What a journal costs: time per item while it is written, and until a resumed run starts its first missing item.

An item's cost is that of its three reports going through a plugin manager with the journal's plugin, less the same
without it, by turns. Resuming starts with a journal that finished all of 20 000 records but the last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from dumps import large
from measure import ROOT, plugin_words, quote, run, scratch, table

ROUNDS = 15
REPORTED = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="default: %(default)s")
    options = parser.parse_args()

    dump = large(options.records)
    names = list(json.loads(dump.read_bytes())["data"])
    with TemporaryDirectory(dir=scratch()) as folder:
        journal = Path(folder) / "run.jsonl"
        words = [f"--msprobe-dump={dump}", "--msprobe-device=cpu", f"--rootdir={dump.parent}"]
        run(plugin_words(f"{words[0]}::{names[0]}", *words[1:], f"--msprobe-journal={journal}"))
        *_, line = journal.read_text().splitlines(keepends=True)
        print(writing(line, Path(folder) / "written.jsonl"))
        with journal.open("a") as file:
            file.writelines(line.replace(names[0], name) for name in names[1:-1])
        print(resuming(words, journal, names[-1]))


def writing(line: str, path: Path) -> str:
    """Return the table of what an item costs, for the item of a journal's line."""
    from pytest_msprobe.journal import Header, JournalWriter
    from pytest_msprobe.run.journaling import JournalReport

    item = json.loads(line)
    blank: dict[str, Any] = {"nodeid": item["id"], "user_properties": [("msprobe.device", "cpu:0")]}
    finished = SimpleNamespace(**blank, msprobe=item["result"])
    reports = [SimpleNamespace(**blank), finished, SimpleNamespace(**blank)] * REPORTED
    writer = JournalWriter(path, Header(dumps={}, settings={}))
    without, with_journal = plugins(), plugins(JournalReport(writer))
    plain, journaled = [], []
    for _ in range(ROUNDS):
        plain.append(milliseconds_per_item(without, reports))
        journaled.append(milliseconds_per_item(with_journal, reports))
    writer.close()
    added = [after - before for before, after in zip(plain, journaled, strict=True)]
    times = [*map(statistics.median, (plain, journaled, added)), max(added)]
    quote("what a journal adds to an item", times[2], unit="ms", wanted="at most 0.05")
    rows = [[len(line), *(f"{milliseconds:.4f}" for milliseconds in times)]]
    return table(["bytes per line", "reports without ms", "with journal ms", "added ms", "largest added ms"], rows)


def plugins(*registered: object) -> Any:
    """Return a plugin manager that knows pytest's hooks."""
    manager = pytest.PytestPluginManager()
    for plugin in registered:
        manager.register(plugin)
    return manager


def milliseconds_per_item(manager: Any, reports: list[SimpleNamespace]) -> float:
    begin = time.perf_counter()
    for report in reports:
        manager.hook.pytest_runtest_logreport(report=report)
    return (time.perf_counter() - begin) / REPORTED * 1e3


def resuming(words: list[str], journal: Path, last: str) -> str:
    """Return the table of how long a run of one record takes to start it: chosen by its id, and as what is missing."""
    moments = journal.with_name("moments.json")
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])])}
    begun = journal.read_bytes()
    ways = {
        "all collected, chosen with -k": ["-k", last],
        "resumed": [f"--msprobe-resume={journal}"],
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(5):
        for way in list(ways)[:: -1 if number % 2 else 1]:
            journal.write_bytes(begun)
            run([*plugin_words(*words, *ways[way]), "-p", "moments", "--moments", moments], env=env)
            found[way].append(json.loads(moments.read_text()))
    rows = []
    for way, runs in found.items():
        reading = statistics.median(moment["configured"] for moment in runs)
        collecting = statistics.median(moment["collected"] - moment["configured"] for moment in runs)
        starting = statistics.median(moment["first item"] - moment["collected"] for moment in runs)
        if way == "resumed":
            quote("from collection to the first missing item", starting, unit="s", wanted="at most 2")
        rows.append([way, f"{reading:.2f}", f"{collecting:.2f}", f"{starting:.2f}"])
    return table(["run", "dump and journal read s", "collected s", "from there to the first item s"], rows)


if __name__ == "__main__":
    main()
