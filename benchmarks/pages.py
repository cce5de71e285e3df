"""How soon pages open and answer a search, in Chromium and from the disk: a check, a comparison, a graph and a run.

    python benchmarks/pages.py [--rounds N] [--records N] [--rows N] [--nodes N] [--series N]
                               [--against CHECKOUT]

Pages are written by the package of this checkout and, with ``--against``, also by that of another one; both are opened
by turns in one browser.

Opening is from the start of the navigation to the frame after the one in which the first row is painted. Searching is
from the input of a word until a changed count is painted; it contains the 120 ms that a page waits for the next key.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import ROOT, quote, scratch, table

# Last, so that the package is the one of PYTHONPATH.
sys.path.append(str(ROOT))

_STEPS = 2_000
_APIS = ("Functional.softmax", "Functional.linear", "Torch.matmul", "Tensor.add", "Functional.layer_norm")
_ROWS = "#scroller tbody tr:not(.gap) td, [role=treeitem], #found-scroller tbody tr:not(.gap) td"
#: Runs before the scripts of a page: keeps when the first row was painted, in milliseconds of the navigation.
_OPENING = f"""
const look = () => document.querySelector({_ROWS!r})
  ? requestAnimationFrame(() => {{ window.openedAfter = performance.now(); }})
  : requestAnimationFrame(look);
requestAnimationFrame(look);
"""
_SEARCHING = """
const [word, done] = arguments;
const field = document.querySelector("#search") ?? document.querySelector("input[type=search]");
const counts = () => [...document.querySelectorAll("[role=status]")].map((one) => one.textContent).join("|");
const before = counts(), began = performance.now();
const look = () => counts() === before
  ? requestAnimationFrame(look)
  : requestAnimationFrame(() => done(performance.now() - began));
field.value = word;
field.dispatchEvent(new Event("input", { bubbles: true }));
look();
"""


@dataclass(frozen=True)
class Page:
    """A page to measure: of what it has how many, how it is written, and a word that some of its rows have."""

    name: str
    of: str
    count: int
    write: Callable[[Path, int], None]
    word: str

    @property
    def title(self) -> str:
        """The name with the size."""
        return f"{self.name}, {self.count} {self.of}"

    def path(self, folder: Path) -> Path:
        """Return the file of the page, which has a folder of its own."""
        return folder / self.name / "page.html"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rounds", type=int, default=7, help="default: %(default)s")
    add("--records", type=int, default=5_000, help="of the check; default: %(default)s")
    add("--rows", type=int, default=30_000, help="of the comparison; default: %(default)s")
    add("--nodes", type=int, default=50_000, help="of the graph; default: %(default)s")
    add("--series", type=int, default=500, help=f"of the run, each of {_STEPS} steps; default: %(default)s")
    add("--against", type=Path, metavar="CHECKOUT", help="another checkout of this repository")
    add("--write", type=Path, metavar="DIR", help="write the pages to this folder, and measure nothing")
    options = parser.parse_args()

    pages = [
        Page("check", "records", options.records, write_check, "softmax"),
        Page("comparison", "rows", options.rows, write_comparison, "softmax"),
        Page("graph", "rows", options.nodes, write_graph, "linear.7"),
        Page("run", "series", options.series, write_run, "layers.1"),
    ]
    if options.write:
        write_all(pages, options.write)
        return
    with TemporaryDirectory(dir=scratch()) as folder:
        sides = {"this": Path(folder, "this")}
        write_all(pages, sides["this"])
        if options.against:
            sides[options.against.name] = Path(folder, "other")
            write_with(options.against, sides[options.against.name])
        print(table(["page", "of", "MB", "open ms", "search ms"], list(measured(pages, sides, options.rounds))))


def write_all(pages: list[Page], folder: Path) -> None:
    """Write each page into a folder of its own."""
    for page in pages:
        page.path(folder).parent.mkdir(parents=True)
        page.write(page.path(folder), page.count)


def write_with(checkout: Path, folder: Path) -> None:
    """Write the pages by the package of another checkout."""
    roots = (checkout / "standards", checkout / "hook_lib", checkout)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(root.resolve()) for root in roots)}
    subprocess.run([sys.executable, __file__, *sys.argv[1:], "--write", folder], env=env, check=True)


def measured(pages: list[Page], sides: Mapping[str, Path], rounds: int) -> Iterator[list[str]]:
    """Yield what each page of each side takes, as rows of the table."""
    from tests.support.browser.chromium import open_browser

    for page in pages:
        paths = {side: page.path(folder) for side, folder in sides.items()}
        seen: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        with open_browser() as browser:
            browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _OPENING})
            for number in range(rounds):
                for side in list(sides)[:: -1 if number % 2 else 1]:
                    seen[side].append(looked_at(browser, paths[side].as_uri(), page.word))
        for side, times in seen.items():
            opening, searching = (statistics.median(each) for each in zip(*times, strict=True))
            quote(f"{page.title}, {side}: open", opening, unit="ms")
            quote(f"{page.title}, {side}: search", searching, unit="ms")
            size = f"{paths[side].stat().st_size / 1e6:.1f}"
            yield [page.title, side, size, f"{opening:.0f}", f"{searching:.0f}"]


def looked_at(browser: Any, address: str, word: str) -> tuple[float, float]:
    """Return the milliseconds in which a page opens, and answers a search."""
    from tests.support.browser.chromium import until

    browser.get("about:blank")
    browser.get(address)
    until(browser, lambda: browser.execute_script("return window.openedAfter !== undefined"))
    opening: float = browser.execute_script("return window.openedAfter")
    return opening, browser.execute_async_script(_SEARCHING, word)


def write_check(path: Path, records: int) -> None:
    """Write the page of a check, every sixth record of which fails."""
    from pytest_msprobe.journal import read_journal
    from pytest_msprobe.journal.shards import Part, whole_runs
    from pytest_msprobe.reports.check_page import write_page_of_journals
    from tests.support.journals import make_judged, write_journal

    def judged(place: int) -> Any:
        name = f"{_APIS[place % len(_APIS)]}.{place // len(_APIS)}.{'backward' if place % 2 else 'forward'}"
        is_wrong = place % 6 == 5
        margin = 1.0 + place % 97 if is_wrong else (place % 89) / 100
        return make_judged(name, "fail" if is_wrong else "pass", margin, "all values 0.1 % too large", place * 1e-3)

    journal = path.with_suffix(".jsonl")
    journal.unlink(missing_ok=True)
    write_journal(journal, *map(judged, range(records)))
    write_page_of_journals(path, whole_runs([Part(journal, read_journal(journal))]))


def write_comparison(path: Path, rows: int) -> None:
    """Write the page of a comparison in which every twelfth call is wrong, three rows a call."""
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.modes.compare.reports.html import write_html
    from pytest_msprobe.modes.compare.rows import ComparedCall, Row

    def call(place: int) -> ComparedCall:
        name = f"{_APIS[place % len(_APIS)]}.{place // len(_APIS)}.forward"
        outcome: Any = "pass" if place % 12 else "fail"
        error = 1e-8 * (1 + math.sin(place)) if place % 12 else 1e-2

        def row(group: Any, number: int, outcome: Any) -> Row:
            here = f"{group}.{number}"
            value = Value(f"{name}.{here}", "torch.Tensor", "torch.float32", (64, 256), False, (1.0, -1.0, 0.5, 2.0))
            metrics = {"scaled_error": error, "max_diff": error, "norm_rel_diff": error}
            messages = ("differs by 0.01 of its scale",) if outcome == "fail" else ()
            return Row(
                group=group,
                place=here,
                target=value,
                golden=value,
                outcome=outcome,
                metrics=metrics,
                messages=messages,
            )

        return ComparedCall(
            record=name,
            pair=0,
            order=place,
            mode="statistics",
            target=name,
            golden=name,
            partner="name",
            outcome=outcome,
            cause="inherited" if outcome == "fail" and place else "culprit" if outcome == "fail" else "",
            module=f"Module.model.layers.{place % 48}.mlp.Linear.forward.0",
            stack=(f"File model.py, line {place % 400}, in forward, \n y = self.layer(x)",),
            rows=(row("input", 0, "pass"), row("input", 1, "pass"), row("output", 0, outcome)),
        )

    calls = map(call, range(rows // 3))
    write_html(path, calls, title="target against golden", about="policy default", pairs=["step0 rank0"])


def write_graph(path: Path, nodes: int) -> None:
    """Write the page of a run of so many modules and calls."""
    from graph_vs_peer import write_runs

    from msprobe_hooks.dump.reader import read_dump
    from pytest_msprobe.extensions.graphs.graph_page import write_single_page

    runs = path.with_name("runs")
    write_runs(runs, nodes)
    write_single_page(path, [read_dump(runs / "target/step0/rank0/dump.json")], title="target")


def write_run(path: Path, series: int) -> None:
    """Write the page of a monitored run, with a finding."""
    from pytest_msprobe.extensions.monitor.page import write_html
    from pytest_msprobe.extensions.monitor.page.build import Finding, RankRuns, build_page
    from tests.support.dumps.watched import norm, write_norms

    values = [2 + math.sin(step / 50) + math.sin(step * step) for step in range(_STEPS + series)]
    keys = [norm(f"layers.{place}.weight") for place in range(series)]
    run = write_norms(path.with_name("run"), {key: values[place : place + _STEPS] for place, key in enumerate(keys)})
    finding = Finding(0, keys[series // 2], _STEPS // 2, "fail", "exploding", "100 times the largest")
    write_html(path, build_page([RankRuns("", run.keys, run)], [finding], title="target", about="", verdict="step"))


if __name__ == "__main__":
    main()
