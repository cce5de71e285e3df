"""Run every benchmark and print one markdown page with their tables and the commands that gave them."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

SECTIONS = {
    "Checking small records, against mindstudio-probe": ["check_vs_peer.py"],
    "Reading and collecting 200 000 records": ["read_and_collect.py"],
    "The plugin's own cost per item": ["item_cost.py"],
    "Metrics of large tensors": ["metrics.py"],
    "Two workers": ["workers.py"],
    "Journals": ["journal.py"],
    "Recording": ["recording.py"],
    "Recording, against mindstudio-probe": ["recording_vs_peer.py"],
    "Files of a watched run": ["series_files.py"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dumps", type=Path, help="a folder of recorded dumps, for real_dumps.py")
    options = parser.parse_args()

    sections = dict(SECTIONS)
    if options.dumps:
        sections["Recorded dumps on a healthy CPU"] = ["real_dumps.py", str(options.dumps)]
    print(f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    failed = []
    for title, words in sections.items():
        print(f"## {title}\n\n`python benchmarks/{' '.join(words)}`\n", flush=True)
        if subprocess.run([sys.executable, FOLDER / words[0], *words[1:]], check=False).returncode:
            failed.append(words[0])
    if failed:
        raise SystemExit(f"without result: {', '.join(failed)}")


def processor() -> str:
    """Return the processor's name, where the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
