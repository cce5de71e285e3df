"""What a start of pytest costs that uses nothing of this plugin, against pytest alone and two other plugins.

One test that passes, by turns, in CPU seconds: where others use the machine, wall times say little.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from importlib.util import find_spec

from measure import Run, by_turns, pytest_words, quote, run, scratch, table

PLUGINS = {
    "pytest-msprobe": "pytest_msprobe.plugin",
    "pytest-html": "pytest_html.plugin",
    "hypothesis": "_hypothesis_pytestplugin",
}
ALONE = "pytest alone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21, help="default: %(default)s")
    options = parser.parse_args()

    test = scratch() / "test_idle_start.py"
    test.write_text("def test_passes():\n    pass\n")
    ways = {ALONE: partial(run, pytest_words(test))}
    for name, module in PLUGINS.items():
        if find_spec(module.partition(".")[0]) is not None:
            ways[name] = partial(run, pytest_words("-p", module, test))
    print(compared(by_turns(ways, options.rounds)))


def compared(runs: dict[str, list[Run]]) -> str:
    """Return the table of all ways; what a plugin adds is the median of the differences of turns."""
    alone = [run.cpu for run in runs[ALONE]]
    rows = []
    for name, done in runs.items():
        seconds = [run.cpu for run in done]
        added = statistics.median(with_it - without for with_it, without in zip(seconds, alone, strict=True))
        least = min(seconds) - min(alone)
        if name == "pytest-msprobe":
            quote("what the plugin adds to a start without it", added, unit="CPU s", wanted="at most 0.05")
        both = ["", ""] if name == ALONE else [f"{added:.3f}", f"{least:.3f}"]
        rows.append([name, f"{statistics.median(seconds):.3f}", f"{min(seconds):.3f}", *both])
    return table(["start of pytest", "median CPU s", "minimum CPU s", "added, median", "added, of minima"], rows)


if __name__ == "__main__":
    main()
