"""Checking a MindSpore dump: this plugin against mindstudio-probe 26.2.0 ``acc_check``, one process each.

The peer's environment is made next to this project's (``.peer26-mindspore``):

    python3.11 -m venv .peer26-mindspore
    .peer26-mindspore/bin/pip install mindstudio-probe==26.2.0 mindspore==2.10.0 torch==2.13.0 'numpy<2'

Start-up is what a run of one record takes; the rest is the records'.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import ROOT, Run, by_turns, middle, plugin_words, quote, run, scratch, table

PEER = ROOT / ".peer26-mindspore" / "bin" / "msprobe"
DUMP = ROOT / "tests" / "data" / "mindspore" / "sweep-float32" / "dump.json"


def repeated(dump: Path, times: int, name: str) -> Path:
    """Write a dump with each call of another this often, or only its first call where that is 0."""
    content = json.loads(dump.read_text())
    data = content["data"]
    if times == 0:
        chosen = dict(list(data.items())[:1])
    else:
        chosen = {
            f"{head}.{int(call) + 100 * i}.{direction}": body
            for i in range(times)
            for (head, call, direction), body in ((key.rsplit(".", 2), body) for key, body in data.items())
        }
    path = scratch() / name / "dump.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content | {"data": chosen}))
    return path


def peer(dump: Path) -> Run:
    """Run the peer's check of a dump."""
    with TemporaryDirectory(dir=scratch()) as folder:
        return run([PEER, "acc_check", "-api_info", dump, "-o", folder])


def ours(dump: Path) -> Run:
    """Run this plugin's check of a dump."""
    return run(plugin_words("--msprobe-dump", dump, "--msprobe-device", "cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=10, help="how often each call of the dump is checked")
    parser.add_argument("--dump", type=Path, default=DUMP)
    options = parser.parse_args()
    if not PEER.exists():
        raise SystemExit(f"{PEER}: not there; {__doc__}")

    whole = repeated(options.dump.resolve(), options.times, "mindspore-whole")
    first = repeated(options.dump.resolve(), 0, "mindspore-first")
    runs = by_turns(
        {
            "ours": partial(ours, whole),
            "peer": partial(peer, whole),
            "ours, one record": partial(ours, first),
            "peer, one record": partial(peer, first),
        },
        options.rounds,
    )
    medians = {name: middle(each) for name, each in runs.items()}
    records = len(json.loads(whole.read_text())["data"])
    rows = []
    ratios = []
    for measured in ("wall", "cpu"):
        took = {name: getattr(each, measured) for name, each in medians.items()}
        each = {name: (took[name] - took[f"{name}, one record"]) / (records - 1) for name in ("ours", "peer")}
        for name, seconds in each.items():
            rows.append([f"{name}, {measured}", f"{took[name]:.1f}", f"{took[f'{name}, one record']:.1f}",
                         f"{records / took[name]:.0f}", f"{1000 * seconds:.2f}"])  # fmt: skip
        whole_ratio, each_ratio = took["peer"] / took["ours"], each["peer"] / each["ours"]
        if measured == "wall":
            quote("MindSpore's records per second, ours / msprobe 26.2.0", whole_ratio, wanted="at least 5")
            quote("the same without start-up", each_ratio)
        ratios.append(f"{measured}: {whole_ratio:.1f} whole process, {each_ratio:.1f} without start-up")
    print(f"{records} records, medians of {options.rounds} rounds, Python {sys.version.split()[0]}\n")
    print(table(["what", "s", "of it start-up", "records/s, whole process", "ms per record"], rows))
    print("records per second, ours over the peer's:", "; ".join(ratios))


if __name__ == "__main__":
    main()
