"""Two workers against one on a dump with uneven items, every process with one thread."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from dumps import UNEVEN, recorded
from measure import Run, by_turns, middle, plugin_words, quote, run, table


def workers(dump: Path, count: int) -> Run:
    return run(plugin_words("-p", "xdist.plugin", "-n", str(count), "--msprobe-dump", dump, "--msprobe-device", "cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dump", type=Path, help="default: a wide GPT-2-like step, recorded on first use")
    options = parser.parse_args()

    dump = options.dump.resolve() if options.dump else recorded("uneven", UNEVEN)
    one, two = "-n 1", "-n 2"
    runs = by_turns({one: partial(workers, dump, 1), two: partial(workers, dump, 2)}, options.rounds)
    medians = {name: middle(each) for name, each in runs.items()}
    rows = [
        [name, f"{each.wall:.2f}", f"{each.cpu:.2f}", f"{medians[one].wall / each.wall:.2f}"]
        for name, each in medians.items()
    ]
    print(f"medians of {options.rounds} rounds, start-up included\n")
    print(table(["what", "wall s", "CPU s", "faster than -n 1"], rows))
    quote("-n 2 faster than -n 1, wall", medians[one].wall / medians[two].wall, wanted="at least 1.8")


if __name__ == "__main__":
    main()
