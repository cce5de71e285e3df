"""Reading and collecting a dump of 200 000 records."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from bare_items import bare_items
from dumps import large
from measure import by_turns, middle, plugin_words, pytest_words, quote, run, table

READ = "import sys, pathlib; from msprobe_hooks.dump.reader import read_dump; read_dump(pathlib.Path(sys.argv[1]))"
IMPORT = "import pathlib; from msprobe_hooks.dump.reader import read_dump"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    options = parser.parse_args()

    dump = large(options.records)
    bare = bare_items(options.records)
    reading, nothing, ours, theirs = "read_dump", "import only", "pytest --collect-only", "bare custom Item collector"
    runs = by_turns(
        {
            reading: partial(run, [sys.executable, "-c", READ, dump]),
            nothing: partial(run, [sys.executable, "-c", IMPORT]),
            ours: partial(run, plugin_words("--collect-only", "--msprobe-dump", dump)),
            theirs: partial(run, pytest_words("--collect-only", bare)),
        },
        options.rounds,
    )
    medians = {name: middle(each) for name, each in runs.items()}
    rows = [[name, f"{each.wall:.2f}", f"{each.cpu:.2f}", f"{each.peak:.0f}"] for name, each in medians.items()]
    print(f"{options.records} records, {dump.stat().st_size / 2**20:.0f} MiB, medians of {options.rounds} rounds\n")
    print(table(["what", "wall s", "CPU s", "peak MiB"], rows))
    print(f"reading beyond the import: {medians[reading].cpu - medians[nothing].cpu:.2f} CPU s")
    ratio = medians[ours].cpu / medians[theirs].cpu
    print(f"collecting against the bare collector: {ratio:.2f} x its CPU s\n")
    quote(f"reading {options.records} records", medians[reading].cpu, unit="CPU s", wanted="at most 0.8")
    quote(f"collecting {options.records} records / bare items", ratio, wanted="at most 1.15")
    quote(f"peak of collecting {options.records} records", medians[ours].peak, unit="MiB", wanted="at most 450")


if __name__ == "__main__":
    main()
