"""The options of screening, and its lines of the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from pytest_msprobe.results.result import screened_of
from pytest_msprobe.run.options import number

_GIGA = 1e9

#: From how many billion operations on products are screened unless something else is asked for: docs/screening.md.
SCREENED_ABOVE = 10.0


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group, and the setting to its parser."""
    group.addoption(
        "--msprobe-screen-above",
        metavar="GFLOP",
        help="screen matrix products and attention of more than this many billion operations: those whose residuals "
        "and sampled elements are right are not computed again (default: 10)",
    )
    group.addoption(
        "--msprobe-no-screening",
        action="store_true",
        help="compute every call again, also calls that msprobe_screen_above or the policy would screen (default: "
        "large products and attention are screened)",
    )
    assert group.parser is not None
    # Without a type, pytest does not read a number of pyproject.toml as one; before 8.4 it has no such type.
    kind: Literal["float"] | None = "float" if pytest.version_tuple >= (8, 4) else None
    group.parser.addini(
        "msprobe_screen_above",
        "billion operations above which products and attention are screened, see --msprobe-screen-above (default: 10)",
        type=kind,
        default=None,
    )


def read_screen_above(config: pytest.Config) -> float | None:
    """Return above how many billion operations a product is screened, None where none is. Raises OptionError."""
    above = number(config, "screen_above", float, "a positive number of billion operations", lambda above: above > 0)
    return None if config.getoption("msprobe_no_screening") else above or SCREENED_ABOVE


def asked(screen_above: float | None) -> list[str]:
    """Return the command-line words that ask for it, none for what is so anyway."""
    if screen_above is None:
        return ["--msprobe-no-screening"]
    return [] if screen_above == SCREENED_ABOVE else ["--msprobe-screen-above", f"{screen_above:g}"]


def operations(screen_above: float | None) -> float | None:
    """Return the same as a number of operations."""
    return None if screen_above is None else screen_above * _GIGA


class ScreenedTally:
    """Counts, for the summary, the records that screening cleared; in detail it lists what was seen of each."""

    def __init__(self, *, in_detail: bool) -> None:
        self._in_detail = in_detail
        self._count = 0
        self._operations = 0
        self._seen: list[str] = []

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        outputs = screened_of(extras)
        self._count += bool(outputs)
        self._operations += sum(output.operations for output in outputs)
        if self._in_detail:
            self._seen += [f"  {output}" for output in outputs]

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._count:
            return []
        saved = f"{self._operations / _GIGA:.3g} billion operations were not computed again"
        return [f"{self._count} cleared by screening: {saved}", *self._seen]
