"""A plugin of `scaling.py`: items of ours that wait as long as a card would compute.

``--waiting FILE`` makes an item of each number of a JSON list, the seconds that it waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.mode import JournalFacts, ModeRegistry

# As large as those of a record with one output.
_METRICS = {"max_rel_error": 1e-6, "mean_rel_error": 1e-7, "eb": 0.01, "rmse": 1e-6, "small_value_err_ratio": 0.0}
_VERDICT = Verdict("pass", "benchmark", "", _METRICS, dict.fromkeys(_METRICS, 2.0), 0.5)
_OUTPUT = OutputResult("output.0", _VERDICT, "torch.float32", "torch.float64", (32, 64, 112, 112))


class WaitingItem(JudgedItem):
    """An item of ours that waits in place of computing; no process that runs it loads torch."""

    is_isolated = False

    def __init__(self, *, seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._seconds = seconds

    def judge(self) -> DirectionResult:
        """Wait, and pass."""
        time.sleep(self._seconds)
        return DirectionResult(self.name, _VERDICT, (_OUTPUT,), seconds=self._seconds)


class WaitingMode:
    """The kind of run that these items are."""

    name = "waiting"
    flag = "--waiting"
    flag_help = "a JSON list of seconds to wait"

    def add_options(self, group: pytest.OptionGroup) -> None:
        """There are none."""

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """There are none."""

    def needs_device(self, config: pytest.Config) -> bool:
        """No item does."""
        return False

    def open(self, config: pytest.Config, dumps: Mapping[Path, Any]) -> None:
        """Nothing belongs to a list of seconds."""

    def header(self, config: pytest.Config) -> list[str]:
        """Return nothing."""
        return []

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the summary that every check has."""
        return {"msprobe-summary": Summary(0)}

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return nothing."""
        return JournalFacts({})

    def items(self, file: pytest.File, waits: list[float]) -> Iterable[pytest.Item]:
        """Return an item for each number."""
        return (
            WaitingItem.from_parent(file, name=f"Functional.conv2d.{number}.forward", seconds=seconds)
            for number, seconds in enumerate(waits)
        )

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return nothing."""
        return []

    def find_files(self, folder: Path) -> list[Path]:
        """Return the lists of a folder."""
        return sorted(folder.glob("*.json"))

    def read_file(self, path: Path) -> list[float]:
        """Return the seconds."""
        waits: list[float] = json.loads(path.read_text())
        return waits

    def label(self, path: Path) -> str:
        """Return the file's name."""
        return path.stem


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Register the kind of run."""
    registry.add(WaitingMode())
