"""Checking a dump on a simulated card: this plugin against ``run_ut`` of 1.2.2 and ``acc_check`` of 26.2.0, by turns.

The peers run as their users run them: torch_npu is the real package, and nothing of theirs is rebound. Then faults are
planted into kernels of the card, one operator each, and the calls that every tool finds wrong are set side by side.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import PEER_PYTHON, ROOT, Run, by_turns, logged_run, middle, plugin_words, quote, run, scratch, table

sys.path.insert(0, str(ROOT))

from tests.support.npu.process import variables

PEER26_PYTHON = ROOT / ".peer26" / "bin" / "python"
EXAMPLE = ROOT / "examples" / "check_a_dump" / "dump.json"
OURS, PEER, PEER26 = "pytest --msprobe-dump", "1.2.2 run_ut", "26.2.0 acc_check"
FAULTS = ("silu", "rsqrt", "cumsum", "_softmax", "embedding", "nll_loss_forward")
#: What each tool says of a direction of a call, in our words; anything else was not judged.
WORDS = {"pass": "passed", "warn": "passed", "warning": "warning", "error": "failed", "fail": "failed"}

Verdicts = dict[str, str]


def part_of(path: Path, calls: int, folder: Path) -> Path:
    """Write the first call of each API and an even part of the others, as the peers take a dump; 0 calls: all."""
    dump = json.loads(path.read_bytes())
    names = [name.removesuffix(".forward") for name in dump["data"] if name.endswith(".forward")]
    chosen = {name.rpartition(".")[0]: name for name in reversed(names)}.values()
    even = {names[number * len(names) // calls] for number in range(calls)} if calls else set(names)
    dump["data"] = {name: each for name, each in dump["data"].items() if name.rpartition(".")[0] in {*chosen, *even}}
    part = folder / "dump.json"
    part.write_text(json.dumps(dump))
    part.chmod(0o640)
    return part


def ours(dump: Path, verdicts: dict[str, Verdicts]) -> Run:
    """Run the plugin and keep what each item came to."""
    words = plugin_words("--msprobe-dump", dump, "--msprobe-device", "npu:0", "--tb=no")
    done, items = logged_run(words)
    checked = {name.rpartition("::")[2]: item["checked"] for name, item in items.items()}
    verdicts[OURS] = {name: WORDS.get(each["verdict"]["outcome"], "-") for name, each in checked.items() if each}
    return done


def peer(dump: Path, verdicts: dict[str, Verdicts], *, name: str) -> Run:
    """Run a peer and keep what its table says of each direction of a call."""
    with TemporaryDirectory(dir=scratch()) as folder:
        python, words = (PEER_PYTHON, ["-f", "pytorch", "run_ut"]) if name == PEER else (PEER26_PYTHON, ["acc_check"])
        done = run([python, "-m", "msprobe.msprobe", *words, "-api_info", dump, "-o", folder])
        found: Verdicts = {}
        for path in Path(folder).rglob("*result*.csv"):
            with path.open(newline="", encoding="utf-8-sig") as file:
                for row in list(csv.reader(file))[1:]:
                    for direction, word in zip(("forward", "backward"), row[1:3], strict=True):
                        found[f"{row[0]}.{direction}"] = WORDS.get(word.strip().lower(), "-")
    verdicts[name] = found
    return done


def measured(dump: Path, rounds: int) -> tuple[dict[str, Run], dict[str, Verdicts]]:
    """Run all three by turns. Returns the medians, and the verdicts of the last round."""
    verdicts: dict[str, Verdicts] = {}
    tools = {name: partial(peer, dump, verdicts, name=name) for name in (PEER, PEER26)}
    runs = by_turns({OURS: partial(ours, dump, verdicts), **tools}, rounds)
    return {name: middle(each) for name, each in runs.items()}, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", type=Path, default=EXAMPLE)
    parser.add_argument("--calls", type=int, default=30, help="calls in addition to the first of each API; 0: all")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()

    os.environ.update(variables())
    with TemporaryDirectory(dir=scratch()) as folder:
        dump = part_of(options.dump, options.calls, Path(folder))
        records = list(json.loads(dump.read_bytes())["data"])
        medians, healthy = measured(dump, options.rounds)
        os.environ["SIMULATED_CANN_FAULTS"] = ",".join(f"{operator}=wrong" for operator in FAULTS)
        _, faulty = measured(dump, 1)
    print(f"{len(records)} records, load {os.getloadavg()[0]:.1f}\n")
    print(
        table(
            ["tool", "wall s", "CPU s", "CPU, ours = 1", "peak MiB", "judged", "failed"], list(rows(medians, healthy))
        )
    )
    print(f"With faults in {', '.join(FAULTS)}:\n")
    names = sorted({name for each in faulty.values() for name, word in each.items() if word == "failed"})
    print(
        table(["record", *faulty], [[name, *(each.get(name, "no row") for each in faulty.values())] for name in names])
    )
    print("Healthy, verdicts that differ:\n")
    differing = [name for name in records if len({each.get(name, "-") for each in healthy.values()}) > 1]
    kinds = Counter((kind_of(name), *(each.get(name, "no row") for each in healthy.values())) for name in differing)
    print(table(["record", *healthy, "count"], [[*kind, count] for kind, count in sorted(kinds.items())]))
    for name in (PEER, PEER26):
        quote(f"checking on a simulated card, {name} / ours, CPU", medians[name].cpu / medians[OURS].cpu)


def rows(medians: dict[str, Run], verdicts: dict[str, Verdicts]) -> list[list[str]]:
    """Return a row for each tool: seconds, peak memory, and how many records it judged and failed."""
    return [
        [
            name,
            f"{each.wall:.1f}",
            f"{each.cpu:.1f}",
            f"{each.cpu / medians[OURS].cpu:.1f}",
            f"{each.peak:.0f}",
            str(sum(word != "-" for word in verdicts[name].values())),
            str(sum(word == "failed" for word in verdicts[name].values())),
        ]
        for name, each in medians.items()
    ]


def kind_of(record: str) -> str:
    """Return a record's name without its number."""
    name, _, direction = record.rpartition(".")
    return f"{name.rpartition('.')[0]} {direction}"


if __name__ == "__main__":
    main()
