"""What every benchmark shares: processes measured as the kernel counts them, run by turns, and tables of their medians.

This module imports nothing large: a child's peak memory is never reported below its parent's size at the fork.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".bench"
PEER_PYTHON = ROOT / ".peer" / "bin" / "python"

QUOTES = "MSPROBE_BENCH_QUOTES"
PASSED, SOME_FAILED = 0, 1
_KEPT_OUTPUT = 4000


@dataclass(frozen=True, slots=True)
class Run:
    """A finished process: wall and CPU seconds, its children's included, and its largest process's peak in MiB."""

    wall: float
    cpu: float
    peak: float
    output: str


def run(words: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> Run:
    """Run a command in an empty folder with one thread per process, and measure it.

    Raises SystemExit with the command's last output where it ended with anything but 0 or 1 (pytest: tests failed).
    """
    with tempfile.TemporaryDirectory(dir=scratch()) as folder, tempfile.TemporaryFile() as output:
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        # Only the end: what this process holds would be counted in the next child's peak.
        output.seek(max(0, output.seek(0, os.SEEK_END) - _KEPT_OUTPUT))
        text = output.read().decode(errors="replace")
    if process.returncode not in (PASSED, SOME_FAILED):
        raise SystemExit(f"{' '.join(map(str, words))}\nended with {process.returncode}:\n{text}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def by_turns(runs: Mapping[str, Callable[[], Run]], rounds: int) -> dict[str, list[Run]]:
    """Run each once per round, the order turned round by round, so that a busy minute hits all of them alike."""
    done: dict[str, list[Run]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            done[name].append(runs[name]())
            last = done[name][-1]
            print(f"  {name}: wall {last.wall:.2f} s, CPU {last.cpu:.2f} s, {last.peak:.0f} MiB", file=sys.stderr)
    return done


def middle(runs: Sequence[Run]) -> Run:
    """Return the median of each number; the output is the last run's."""
    return Run(
        statistics.median(run.wall for run in runs),
        statistics.median(run.cpu for run in runs),
        statistics.median(run.peak for run in runs),
        runs[-1].output,
    )


def step_seconds(python: Path, script: Path, words: Sequence[str], folders: Sequence[Path]) -> float:
    """Return the median of the seconds that a script prints, run by some Python that also imports from ``folders``.

    Raises SystemExit with the script's last output where it fails.
    """
    done = subprocess.run(
        [python, script, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{python} {script.name} {' '.join(words)}:\n{done.stderr[-2000:]}")
    # The peer prints lines of its own.
    line = next(line for line in done.stdout.splitlines() if line.startswith("seconds "))
    return statistics.median(json.loads(line.removeprefix("seconds ")))


def pytest_words(*arguments: str | Path) -> list[str | Path]:
    """Return the command that runs pytest in this Python without its cache and without this repository's settings."""
    return [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "no:cacheprovider", "-q", *arguments]


def plugin_words(*arguments: str | Path) -> list[str | Path]:
    """Return the command that runs pytest with this plugin and no other that happens to be installed."""
    return pytest_words("-p", "pytest_msprobe.plugin", *arguments)


def logged(words: Sequence[str | Path]) -> dict[str, dict[str, Any]]:
    """Run a pytest command with the plugin ``item_log`` and return what that wrote of each item."""
    return logged_run(words)[1]


def logged_run(words: Sequence[str | Path]) -> tuple[Run, dict[str, dict[str, Any]]]:
    """Run a pytest command with the plugin ``item_log``; return what it took and what that wrote of each item."""
    path = scratch() / "items.json"
    folders = [str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = run([*words, "-p", "item_log", "--item-log", path], env={"PYTHONPATH": os.pathsep.join(folders)})
    items: dict[str, dict[str, Any]] = json.loads(path.read_text())
    path.unlink()
    return done, items


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def quote(what: str, measured: float, *, unit: str = "x", wanted: str = "") -> None:
    """Hand over a number that the documents quote to ``run_all.py``; a script that runs alone only prints its own.

    ``unit`` is ``x`` for a ratio. It is one line of JSON in the file that ``MSPROBE_BENCH_QUOTES`` names.
    """
    if path := os.environ.get(QUOTES):
        line = {"what": what, "wanted": wanted, "measured": measured, "unit": unit, "load": os.getloadavg()[0]}
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


def scratch() -> Path:
    """Return the folder for dumps and results, which git ignores."""
    SCRATCH.mkdir(exist_ok=True)
    return SCRATCH
