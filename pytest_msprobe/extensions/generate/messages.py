"""What ``pytest-msprobe generate`` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from msprobe_hooks.messages import counted, listed
from pytest_msprobe.extensions.generate.module_plan import Module, Plan
from pytest_msprobe.extensions.generate.module_source import Provenance
from pytest_msprobe.extensions.generate.outcome_plugin import Outcome
from pytest_msprobe.reports.text import echo, printable

_SHOWN = 5


def print_plan(plan: Plan, folder: Path, earlier: list[str]) -> None:
    """Print what was written, what was left out and why, and what was there before."""
    records = sum(len(module.records) for module in plan.modules)
    if plan.modules:
        echo(f"{folder}: {counted(records, 'record')} in {counted(len(plan.modules), 'module')}")
    if plan.tensor_files:
        size = sum((folder / name).stat().st_size for name in plan.tensor_files)
        echo(f"{folder}: {counted(len(plan.tensor_files), 'tensor file')}, {_bytes(size)}")
    by_reason: dict[str, list[str]] = {}
    for record, reason in plan.left_out.items():
        by_reason.setdefault(reason, []).append(record)
    for reason, names in by_reason.items():
        echo(f"left out: {_some(names)}: {_shown(reason)}")
    if earlier:
        echo(f"kept from earlier runs: {_some(earlier)}")


def print_outcomes(module: Module, outcomes: Mapping[str, Outcome], *, again: bool) -> None:
    """Print the outcomes of one module's records; ``again`` says that all of them failed before."""
    echo(f"\n{module.file}")
    words = {"failed": "still fails", "passed": "passes now"} if again else {"failed": "fails", "passed": "passes"}
    width = max((len(_shown(label)) for label in outcomes), default=0)
    for label, outcome in outcomes.items():
        reason = f": {_shown(outcome.reason)}" if outcome.reason else ""
        echo(f"  {_shown(label):{width}}  {words.get(outcome.outcome, outcome.outcome)}{reason}")
    if not outcomes:
        echo("  no test was run")


def print_total(outcomes: Mapping[str, Outcome], folder: Path, provenance: Provenance) -> None:
    """Print how many failed, and how to run them again."""
    found = [outcome.outcome for outcome in outcomes.values()]
    counts = [f"{found.count(kind)} {kind}" for kind in ("failed", "passed", "skipped") if kind in found]
    echo(f"\n{', '.join(counts) or 'nothing ran'}")
    echo(f"Run them again: {shlex.join(['pytest', str(folder), *provenance.options])}")


def _shown(text: str) -> str:
    """Return a text as printable ASCII on one line; the escapes that names of records come with stay as they are."""
    return printable(" ".join(text.splitlines())).encode("ascii", "backslashreplace").decode()


def _some(names: Iterable[str]) -> str:
    return listed(map(_shown, names), _SHOWN)


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB" if size >= 2**10 else f"{size} B"
