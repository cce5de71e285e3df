"""The options of screening, and its lines of the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_msprobe.run.option_fields import add_fields, number, option, read_field

_GIGA = 1e9

#: From how many billion operations on products are screened unless something else is asked for: docs/screening.md.
SCREENED_ABOVE = 10.0


_OPTION, _OFF = "--msprobe-screening", "off"


def _above(config: pytest.Config, name: str, text: str) -> float | None:
    if text == _OFF:
        return None
    read = number(float, f"{_OFF} or a positive number of billion operations", lambda above: above > 0)
    above: float = read(config, name, text)
    return above


@dataclass(frozen=True, slots=True)
class ScreeningOptions:
    """Above how many billion operations a product is screened, None where none is."""

    above: float | None = option(
        _OPTION,
        "screen matrix products and attention of more than this many billion operations: those whose residuals and "
        "sampled elements are right are not computed again; off computes every call again, also those that the policy "
        f"would screen (default: {SCREENED_ABOVE:g})",
        metavar="off|GFLOP",
        read=_above,
        default=SCREENED_ABOVE,
    )


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    add_fields(group, ScreeningOptions)


def read_screen_above(config: pytest.Config) -> float | None:
    """Return above how many billion operations a product is screened, None where none is. Raises OptionError."""
    above: float | None = read_field(config, ScreeningOptions, "above")
    return above


def asked(screen_above: float | None) -> list[str]:
    """Return the command-line words that ask for it, none for what is so anyway."""
    if screen_above is None:
        return [_OPTION, _OFF]
    return [] if screen_above == SCREENED_ABOVE else [_OPTION, f"{screen_above:g}"]


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
        from pytest_msprobe.results.result import screened_of

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
