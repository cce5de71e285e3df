"""The options of screening, and its lines of the summary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_msprobe.modes.check.features import CheckFeature, FeatureOptions
from pytest_msprobe.results.result import decode_extra
from pytest_msprobe.run.option_fields import number, option, read_fields

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.engine.replay.trials.config import ReplayConfig

#: Under this name a result has them.
SCREENED = "screened"


@dataclass(frozen=True, slots=True)
class ScreenedOutput:
    """An output of a ``record`` that was cleared: the worst ``residual`` as a share of its limit, and what it is of.

    ``sampled`` of ``numel`` elements were computed exactly. ``operations`` is what the exact check would have computed.
    """

    record: str
    path: str
    residual: float
    kind: str
    sampled: int
    numel: int
    operations: int

    @property
    def in_words(self) -> str:
        """Return what was seen."""
        return (
            f"residuals at most {self.residual:.2g} of their limit ({self.kind}), "
            f"{self.sampled} of {self.numel} elements computed exactly"
        )

    def __str__(self) -> str:
        return f"{self.record} {self.path}: {self.in_words}"


def screened_of(extras: Mapping[str, Any]) -> list[ScreenedOutput]:
    """Return what the extras of a result say of screening; nothing of a record that was checked exactly."""
    return decode_extra(extras, SCREENED, list[ScreenedOutput]) or []


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


@dataclass(slots=True)
class ScreeningOptions(FeatureOptions):
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
    _configs: dict[tuple[str, float | None], ReplayConfig] = field(default_factory=dict, compare=False, repr=False)

    name = "screening"

    def words(self) -> list[str]:
        """Return the option, nothing for what is so anyway."""
        if self.above is None:
            return [_OPTION, _OFF]
        return [] if self.above == SCREENED_ABOVE else [_OPTION, f"{self.above:g}"]

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
    options = ScreeningOptions

    def usual_options(self) -> ScreeningOptions:
        """Return that large products are screened."""
        return ScreeningOptions()

    def read_options(self, config: pytest.Config) -> ScreeningOptions:
        """Return from how many operations on products are screened. Raises OptionError."""
        return read_fields(config, ScreeningOptions)

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
