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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import quote
from benchmarks.tools import calls, msprobe, ours
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
        for unit, answers in run([unit for unit in units if unit not in done], options.tool, options.jobs):
            journal.write(json.dumps([unit, answers]) + "\n")
            journal.flush()
            done[unit] = answers
            if len(done) % 100 == 0:
                print(f"{len(done)} of {len(units)} devices", file=sys.stderr)
    judged = [Judged(*done[unit]) for unit in units]
    text = report(judged, tools, msprobe.missing())
    print(text)
    quote_ours(judged)
    if options.output is not None:
        before, _, rest = options.output.read_text(encoding="utf-8").partition(MARK)
        options.output.write_text(f"{before}{MARK}\n{text}\n\n{MARK}{rest.partition(MARK)[2]}", encoding="utf-8")


def quote_ours(judged: Sequence[Judged]) -> None:
    """Hand over what documents quote of this project's own rows."""
    for tool in ours.TOOLS:
        for is_faulty, what, wanted in ((True, "planted faults found", ""), (False, "right devices accused", "0")):
            shown = [each for each in judged if each.calls and each.is_faulty is is_faulty]
            accused = sum(any(each.accused(tool.name, ("wrong", "warning"))) for each in shown)
            quote(f"{tool.name}: {what}, of {len(shown)}", accused, unit="", wanted=wanted)


def begin(header: dict[str, Any]) -> dict[int, Any]:
    """Return what the journal has of a run with this header, by number of the device; begin it anew for another."""
    lines = JOURNAL.read_text().splitlines(keepends=True) if JOURNAL.exists() else []
    # A run that was killed may have left a part of a line.
    whole = [line for line in lines if line.endswith("\n")]
    if whole[:1] != [json.dumps(header) + "\n"]:
        whole = [json.dumps(header) + "\n"]
    JOURNAL.write_text("".join(whole))
    return dict(json.loads(line) for line in whole[1:])


def digest_of_code() -> str:
    files = (path for folder in _CODE for path in sorted((calls.ROOT / folder).rglob("*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files if path.name not in _TABLES)).hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
