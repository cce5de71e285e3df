"""Every kind of page, made from the examples; ``make page-pictures`` writes pictures of each into page-pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.browser.chromium import open_browser, set_system_theme, set_width, settle
from tests.support.browser.pictures import COMPARE, FAULTY, MONITOR, prepare, run, trend_commands

VIEWS = tuple((width, theme) for width in (360, 768, 1400, 2560) for theme in ("light", "dark"))

OVERFLOW = "pytest -q --msprobe-overflow=examples/overflow/step0"
COMMUNICATION = "pytest -q --msprobe-communication=examples/overflow/step0"
CHECKPOINTS = "pytest -q --msprobe-checkpoint=first.safetensors --msprobe-golden=second.safetensors"
STARTS = tuple(f"pytest-msprobe environment -o {name} {name}.yaml" for name in ("here", "there"))
ENVIRONMENT = "pytest -q --msprobe-environment=here --msprobe-golden=there"
INFERENCE = (
    "pytest -q --msprobe-compare=examples/train_and_inference/serve"
    " --msprobe-golden=examples/train_and_inference/train --msprobe-match=inference"
)


@dataclass(frozen=True)
class EveryPage:
    """A page, the commands that write it as ``page.html``, and what is clicked before it is looked at."""

    name: str
    commands: tuple[str, ...]
    script: str = ""

    def write(self, work: Path) -> Path:
        """Run the commands in a folder and return the page."""
        for command in self.commands:
            run(command, work)
        return (work / "page.html").rename(work / f"{self.name}.html")

    def views(self, browser: Any, address: str, views: Iterable[tuple[int, str]] = VIEWS) -> Iterator[tuple[int, str]]:
        """Open the page at each of these widths and themes, and yield both while it is shown so."""
        for width, theme in views:
            set_width(browser, width)
            set_system_theme(browser, theme)
            browser.get(address)
            browser.execute_script(self.script)
            settle(browser)
            yield width, theme


PAGES = (
    EveryPage("check", (f"{FAULTY} --msprobe-html=page.html",), "table.goTo(wrongRows[0])"),
    EveryPage("comparison", (f"{COMPARE} --msprobe-html=page.html",)),
    EveryPage("comparison_graph", (f"{COMPARE} --msprobe-html=page.html",), "views.show('graph')"),
    EveryPage("graph", ("pytest-msprobe graph examples/compare_runs/target --html page.html",)),
    EveryPage("monitor", ("python golden/train.py", "python target/train.py", f"{MONITOR} --msprobe-html=page.html")),
    EveryPage("trend", trend_commands()),
    EveryPage("overflow", (f"{OVERFLOW} --msprobe-html=page.html",)),
    EveryPage("communication", (f"{COMMUNICATION} --msprobe-html=page.html",)),
    EveryPage("checkpoint", ("python two_sides.py", f"{CHECKPOINTS} --msprobe-html=page.html")),
    EveryPage("environment", ("python two_sides.py", *STARTS, f"{ENVIRONMENT} --msprobe-html=page.html")),
    EveryPage("inference", (f"{INFERENCE} --msprobe-html=page.html",)),
    EveryPage(
        "show",
        (
            "python two_sides.py",
            "pytest-msprobe show first.safetensors second.safetensors --html page.html",
        ),
    ),
)


def write_pictures(folder: Path) -> None:
    """Write a picture of each page, at each width in each theme, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as work, open_browser() as browser:
        prepare(Path(work))
        for page in PAGES:
            for width, theme in page.views(browser, page.write(Path(work)).as_uri()):
                browser.save_screenshot(str(folder / f"{page.name}-{width}-{theme}.png"))


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
