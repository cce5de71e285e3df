"""What an item is asked for on the fast path."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

# Thousands of items share a path, and pytest would look for its hooks for each.
_hooks_key = pytest.StashKey[dict[Path, Any]]()


def forget_hooks(config: pytest.Config) -> None:
    """Make items ask pytest for their hooks again, once all files are collected and every ``conftest.py`` is known."""
    config.stash.setdefault(_hooks_key, {}).clear()


class FastItem(pytest.Item):
    """An item without fixtures: it has no phase but its call."""

    #: What pytest calls for the item while it runs, where that is not what it calls for a test.
    running_hooks: Any = None
    #: The attributes of the reports that the item can make again, none where it cannot.
    attributes_made_again: frozenset[str] = frozenset()

    @property
    def ihook(self) -> Any:
        """The hooks that pytest calls for the item."""
        if self.running_hooks is not None:
            return self.running_hooks
        known = self.config.stash.setdefault(_hooks_key, {})
        if self.path not in known:
            known[self.path] = super().ihook
        return known[self.path]

    def direct_report(self) -> pytest.TestReport | None:
        """Run the item and return the report of its call; None where pytest's hooks are needed, which run it then."""
        return None

    def report_again(
        self, when: Literal["setup", "call", "teardown"], start: float, stop: float, skipped: str | None
    ) -> pytest.TestReport:
        """Return the report of a phase as it was, where the item can make it again."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back what the item holds, when it has run."""

    def phase_report(
        self,
        when: Literal["setup", "call", "teardown"],
        start: float,
        stop: float,
        sections: tuple[tuple[str, str], ...] = (),
        skipped: str | None = None,
    ) -> pytest.TestReport:
        """Return the report of a phase that passed, or was ``skipped`` for this reason."""
        return pytest.TestReport(
            # What an id consists of, where pytest knows that, and need not find it in its text.
            getattr(self, "id", self.nodeid),
            self.location,
            {self.name: 1},
            "passed" if skipped is None else "skipped",
            None if skipped is None else (str(self.path), 0, f"Skipped: {skipped}"),
            when,
            sections,
            duration=stop - start,
            start=start,
            stop=stop,
            user_properties=self.user_properties,
        )
