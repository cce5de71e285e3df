"""The options of screening, and its lines of the summary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_msprobe.extensions.screening.screened_output import screened_of
from pytest_msprobe.modes.check.features import CheckFeature, FeatureOptions
from pytest_msprobe.run.options import number

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig

_GIGA = 1e9

#: From how many billion operations on products are screened unless something else is asked for: docs/screening.md.
SCREENED_ABOVE = 10.0


@dataclass(slots=True)
class ScreeningOptions(FeatureOptions):
    """Products of more than ``above`` billion operations are screened; None where all is checked exactly."""

    above: float | None = SCREENED_ABOVE
    _configs: dict[tuple[str, float | None], ReplayConfig] = field(default_factory=dict, compare=False, repr=False)

    name = "screening"

    def words(self) -> list[str]:
        """Return the options, none for what is so anyway."""
        if self.above is None:
            return ["--msprobe-no-screening"]
        return [] if self.above == SCREENED_ABOVE else ["--msprobe-screen-above", f"{self.above:g}"]

    def replay_config(self, config: ReplayConfig, api: str) -> ReplayConfig:
        """Return a framework's setup with how large a call of an API is screened, which its policy may say."""
        # Where golden is needed whole, nothing is computed in blocks, and nothing left out.
        if self.above is None or config.raised_above is None:
            return config
        above = config.policy.screened_above(api, self.above)
        key = config.framework.name, above
        if key not in self._configs:
            self._configs[key] = replace(config, screen_above=None if above is None else above * _GIGA)
        return self._configs[key]


class ScreeningFeature(CheckFeature):
    """Screening of large products."""

    name = "screening"

    def usual_options(self) -> ScreeningOptions:
        """Return that large products are screened."""
        return ScreeningOptions()

    def add_options(self, group: pytest.OptionGroup) -> None:
        """Add the options to the group, and the setting to its parser."""
        group.addoption(
            "--msprobe-screen-above",
            metavar="GFLOP",
            help="screen matrix products and attention of more than this many billion operations: those whose "
            "residuals and sampled elements are right are not computed again (default: 10)",
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
            "billion operations above which products and attention are screened, see --msprobe-screen-above "
            "(default: 10)",
            type=kind,
            default=None,
        )

    def read_options(self, config: pytest.Config) -> ScreeningOptions:
        """Return from how many operations on products are screened. Raises OptionError."""
        wanted = "a positive number of billion operations"
        above = number(config, "screen_above", float, wanted, lambda above: above > 0)
        return ScreeningOptions(None if config.getoption("msprobe_no_screening") else above or SCREENED_ABOVE)

    def tallies(self, *, in_detail: bool) -> Collection[ScreenedTally]:
        """Return what counts cleared records."""
        return (ScreenedTally(in_detail=in_detail),)


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
