"""The page of a check: bytes, seconds to write, and how soon Chromium shows it.

A fifth of the records fails, each with an error map, the statistics of its inputs and a stack. Needs chromium,
chromedriver and selenium. Seconds are those of the clock: of a busy machine they are upper bounds.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from measure import ROOT, quote, scratch, table

sys.path.insert(0, str(ROOT))

from pytest_msprobe.engine.values.error_map import error_map
from pytest_msprobe.engine.values.tolerance import Allowance
from pytest_msprobe.reports.check_page.html import write_verdicts_page
from pytest_msprobe.reports.check_page.model import CheckedRecord, RunFacts
from pytest_msprobe.reports.check_page.rows import Rows
from pytest_msprobe.results.circumstances import InputStatistics, with_called_at, with_inputs
from pytest_msprobe.results.error_map import ErrorMap
from pytest_msprobe.results.result import DirectionResult
from tests.support.browser import open_browser, texts, until
from tests.support.journals import START, make_judged

APIS = ("linear", "softmax", "silu", "layer_norm", "scaled_dot_product_attention", "conv2d", "gelu", "embedding")
STACK = [f"File /home/me/model/block{place}.py, line {place}, in forward, self.inner(x)" for place in range(20)]
SHAPE = (8, 512, 4096)
INPUTS = [InputStatistics(f"args.{place}", "torch.bfloat16", SHAPE, -3.0, 3.0, 0.0, 1.0, 0) for place in (0, 1)]
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    rows = [measured(count, options.rounds) for count in options.records]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(table(["records", "page, MiB", "written in, s", "shown in, s (median, least)"], rows))


def measured(count: int, rounds: int) -> list[str]:
    path = scratch() / "check.html"
    records = Rows()
    for result in results(count):
        records.add(CheckedRecord(0, result, card="npu:3", rerun=("pytest", "--msprobe-dump=<dump>::<record>")))
    start = time.perf_counter()
    write_verdicts_page(path, [RunFacts("run", "2026-11-23 00:00", [START], {"policy": "default"})], records)
    written = time.perf_counter() - start
    shown = [seconds_to_show(path) for _ in range(rounds)]
    size = path.stat().st_size / MIB
    quote(f"the page of {count} records", size, unit="MiB")
    quote(f"the page of {count} records, until its first rows are shown", statistics.median(shown), unit="s")
    return [str(count), f"{size:.1f}", f"{written:.1f}", f"{statistics.median(shown):.2f}, {min(shown):.2f}"]


def seconds_to_show(path: Path) -> float:
    """Return the seconds from asking for the page until its first rows stand in it."""
    with open_browser() as browser:
        browser.get("about:blank")
        start = time.perf_counter()
        browser.get(path.as_uri())
        until(browser, lambda: bool(texts(browser, "#scroller tbody td:nth-child(3)")))
        return time.perf_counter() - start


def results(count: int) -> Iterator[DirectionResult]:
    """Yield results in the order of a run; they differ in margin, so that no two rows are alike."""
    draw, maps = random.Random(0), [wrong_map(seed) for seed in range(16)]
    for place in range(count):
        name = f"Functional.{APIS[place % len(APIS)]}.{place}.{('forward', 'backward')[place % 2]}"
        if place % 5:
            yield make_judged(name, "pass", draw.random(), seconds=draw.random())
            continue
        failed = make_judged(name, "fail", math.exp(8 * draw.random()), reason="2 of 32 elements are wrong")
        (output,) = failed.outputs
        failed = replace(failed, outputs=(replace(output, error_map=maps[place % len(maps)]),))
        yield with_called_at(with_inputs(failed, INPUTS), STACK)


def wrong_map(seed: int) -> ErrorMap:
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(256, 512, dtype=torch.float64, generator=generator)
    target = golden.float() * (1 + 1e-5 * torch.randn(256, 512, generator=generator))
    found = error_map(target, golden, Allowance(ulps=2), baseline=golden.float())
    assert found is not None
    return found


if __name__ == "__main__":
    main()
