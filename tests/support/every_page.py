"""Every kind of page that a run or a command writes: the commands that make one of each from the examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.pictures import COMPARE, FAULTY, MONITOR, run, trend_commands

OVERFLOW = "pytest -q --msprobe-overflow=examples/overflow/step0"
COMMUNICATION = "pytest -q --msprobe-communication=examples/overflow/step0"
CHECKPOINTS = "pytest -q --msprobe-checkpoint=first.npz --msprobe-golden=second.npz"
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


PAGES = (
    EveryPage("check", (f"{FAULTY} --msprobe-html=page.html",), "open(wrongRows[0])"),
    EveryPage("comparison", (f"{COMPARE} --msprobe-html=page.html",)),
    EveryPage("comparison_graph", (f"{COMPARE} --msprobe-html=page.html",), "views.show('graph')"),
    EveryPage("graph", ("pytest-msprobe graph examples/compare_runs/target --html page.html",)),
    EveryPage("monitor", ("python golden/train.py", "python target/train.py", f"{MONITOR} --msprobe-html=page.html")),
    EveryPage("trend", trend_commands()),
    EveryPage("overflow", (f"{OVERFLOW} --msprobe-html=page.html",)),
    EveryPage("communication", (f"{COMMUNICATION} --msprobe-html=page.html",)),
    EveryPage("checkpoint", (f"{CHECKPOINTS} --msprobe-html=page.html",)),
    EveryPage("environment", (f"{ENVIRONMENT} --msprobe-html=page.html",)),
    EveryPage("inference", (f"{INFERENCE} --msprobe-html=page.html",)),
    EveryPage("show", ("pytest-msprobe show first.npz second.npz --html page.html",)),
)
