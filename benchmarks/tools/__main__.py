"""Measures tools: how many planted faults each finds, and how often it accuses a device that is right.

``python -m benchmarks.tools`` prints the tables, and goes on where it was stopped; ``--tool my_module:TOOL`` adds a
tool of your own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.tools import calls, msprobe
from benchmarks.tools.judged import Judged
from benchmarks.tools.report import MARK, report
from benchmarks.tools.running import everything, measured_tools, run
from pytest_msprobe.errors import CommandError

JOURNAL = calls.SCRATCH / "journal.jsonl"
# What decides the answers: with other code a journal is begun anew.
_CODE = ("pytest_msprobe", "standards", "hook_lib", "tests/corpus", "benchmarks/tools", "benchmarks/peer")
_TABLES = ("__main__.py", "report.py")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tools", description=__doc__)
    parser.add_argument("--tool", action="append", default=[], metavar="MODULE:NAME", help="a tool of your own")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, help="only every so many planted devices, for a quick look")
    parser.add_argument("-o", "--output", type=Path, help="a document whose tables between its marks are replaced")
    options = parser.parse_args()

    calls.SCRATCH.mkdir(parents=True, exist_ok=True)
    try:
        calls.prepare()
        tools = measured_tools(options.tool)
    except CommandError as error:
        raise SystemExit(str(error)) from None
    units = range(0, len(everything()), options.every)
    header = {"torch": torch.__version__, "tools": [tool.name for tool in tools], "code": digest_of_code()}
    done = begin(header)
    with JOURNAL.open("a") as journal:
        for unit, judged in run([unit for unit in units if unit not in done], options.tool, options.jobs):
            journal.write(json.dumps([unit, judged]) + "\n")
            journal.flush()
            done[unit] = judged
            if len(done) % 100 == 0:
                print(f"{len(done)} of {len(units)} devices", file=sys.stderr)
    text = report([Judged(*done[unit]) for unit in units if unit in done], tools, msprobe.missing())
    print(text)
    if options.output is not None:
        before, _, rest = options.output.read_text(encoding="utf-8").partition(MARK)
        options.output.write_text(f"{before}{MARK}\n{text}\n{MARK}{rest.partition(MARK)[2]}", encoding="utf-8")


def begin(header: dict[str, Any]) -> dict[int, Any]:
    """Return what the journal has of a run with this header; begin one anew where it has another, or all."""
    try:
        first, *lines = JOURNAL.read_text().splitlines()
        if json.loads(first) == header:
            return dict(json.loads(line) for line in lines if line.endswith("]"))
    except (OSError, ValueError):
        pass
    JOURNAL.write_text(json.dumps(header) + "\n")
    return {}


def digest_of_code() -> str:
    files = (path for folder in _CODE for path in sorted((calls.ROOT / folder).rglob("*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files if path.name not in _TABLES)).hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
