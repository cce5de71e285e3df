"""What an item of a small tensor costs beyond pytest's own cost of an item and beyond the API's calls.

An item's time is the CPU time from its start to the next one's, with every hook and report. Subtracted are the time
inside the API's target and golden calls and their gradients, and the median of items that do nothing, in a process
that has imported torch too: pytest visits each of its loggers in each phase of an item.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bare_items import bare_items
from dumps import SMALL, recorded
from measure import logged, plugin_words, pytest_words, quote, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", type=Path, help="default: 996 calls of a GPT-2-like step, recorded on first use")
    options = parser.parse_args()

    dump = options.dump.resolve() if options.dump else recorded("small", SMALL)
    items = logged(plugin_words("--msprobe-dump", dump, "--msprobe-device", "timed-cpu"))
    bare = logged(pytest_words("-p", "torch", bare_items(len(items))))
    floor = statistics.median(item["seconds"] for item in bare.values())

    rows = []
    for name, ending in (("all", ""), ("forward", ".forward"), ("backward", ".backward")):
        chosen = [item for key, item in items.items() if key.endswith(ending)]
        rows.append([name, len(chosen), *map(milliseconds, quartiles([own_cost(item, floor) for item in chosen]))])
    apis = statistics.median(item["api_seconds"] for item in items.values())
    print(f"an item that does nothing: {milliseconds(floor)} ms; the API's calls of an item: {milliseconds(apis)} ms\n")
    own = statistics.median(own_cost(item, floor) for item in items.values())
    quote("an item beyond a bare item / the API's calls of an item", (own + apis) / apis, wanted="at most 1.5")
    quote("an item's own cost, median", own * 1e3, unit="ms")
    print(table(["items", "count", "1st quartile ms", "median ms", "3rd quartile ms"], rows))


def own_cost(item: Mapping[str, Any], floor: float) -> float:
    return float(item["seconds"] - item["api_seconds"] - floor)


def quartiles(seconds: list[float]) -> list[float]:
    return statistics.quantiles(seconds, n=4)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


if __name__ == "__main__":
    main()
