"""Features of a check in addition to its verdicts, with options of their own, which extensions and plugins add."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_msprobe.installed_extensions import register
from pytest_msprobe.run.option_data import HOW, Row, add_rows

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.engine.replay.trials.config import ReplayConfig
    from pytest_msprobe.modes.check.follow_ups import FollowUp
    from pytest_msprobe.modes.check.save_case import SaveFailure
    from pytest_msprobe.reports.summary import Tally
    from pytest_msprobe.run.options import Options

_HOOK = "pytest_msprobe_register_check_features"
_PLUGIN = "msprobe-check-features"


class FeatureOptions:
    """Options of one run for a feature; a subclass has what it needs of these methods.

    It is a dataclass whose fields are declared as `run.option_fields` has them. ``needs_golden`` says that each call's
    golden results are needed whole, and none may be left out or cut.
    """

    name: str
    needs_golden: bool = False

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same; none for what is so anyway."""
        from pytest_msprobe.run.option_fields import words

        return words(self)

    def journal_setting(self) -> str:
        """Return what two runs must share for one to go on with the other's journal; empty for nothing."""
        return " ".join(self.words())

    def replay_config(self, config: ReplayConfig, api: str) -> ReplayConfig:
        """Return the setup of a framework as it is for an API."""
        return config

    def follow_up(self, options: Options) -> FollowUp | None:
        """Return the step after a verdict, whose failure is saved like any other."""
        return None

    def last_step(self, options: Options, save: SaveFailure | None) -> FollowUp | None:
        """Return the step after a failure was saved, which saves what it finds with ``save``."""
        return None

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the plugins that hear of every item, by name."""
        return {}


class CheckFeature:
    """One feature: its options, and what the summary counts of it."""

    name: str
    #: The class of its options, which are added to the group ``how to check``.
    options: type[Any] | None = None

    def usual_options(self) -> FeatureOptions | None:
        """Return what is asked of it where there are no options, as in ``check_dump``; None for nothing."""
        return None

    def read_options(self, config: pytest.Config) -> FeatureOptions | None:
        """Return what is asked for, None for nothing. Raises OptionError."""
        return self.usual_options()

    def checks_only(self) -> Collection[str]:
        """Return the options that only a run of checks may have."""
        return ()

    def tallies(self, *, in_detail: bool) -> Collection[Tally]:
        """Return what counts the feature's extras for the summary."""
        return ()


class CheckFeatures:
    """Features by name; plugins add theirs in ``pytest_msprobe_register_check_features``.

    Each adds its options to pytest's as it comes, until the command line is parsed.
    """

    def __init__(self, parser: pytest.Parser | None = None) -> None:
        self._parser = parser
        self.rows: list[Row] = []
        self._features: dict[str, CheckFeature] = {}

    def end_options(self) -> None:
        """Add no options from now on: the command line is parsed."""
        self._parser = None

    def add(self, feature: CheckFeature) -> None:
        """Make a feature known, and its options where options are read."""
        if feature.name in self._features:
            raise ValueError(f"the feature {feature.name!r} of checks is already registered; choose another name")
        self._features[feature.name] = feature
        if feature.options is not None:
            from pytest_msprobe.run.option_fields import rows

            added = rows(feature.options, HOW)
            self.rows += added
            if self._parser is not None:
                add_rows(self._parser, added)

    def __iter__(self) -> Iterator[CheckFeature]:
        return iter(self._features.values())

    def usual(self) -> tuple[FeatureOptions, ...]:
        """Return what is asked of the features where there are no options."""
        return _asked(feature.usual_options() for feature in self)

    def asked(self, config: pytest.Config) -> tuple[FeatureOptions, ...]:
        """Return what the options ask of the features. Raises OptionError."""
        return _asked(feature.read_options(config) for feature in self)

    def tallies(self, *, in_detail: bool) -> list[Tally]:
        """Return what counts the extras of all features."""
        return [tally for feature in self for tally in feature.tallies(in_detail=in_detail)]


def _asked(options: Iterable[FeatureOptions | None]) -> tuple[FeatureOptions, ...]:
    return tuple(feature for feature in options if feature is not None)


def register_features(pluginmanager: pytest.PytestPluginManager, parser: pytest.Parser) -> None:
    """Ask every plugin for its features: those that are there, and each that comes later when it comes."""
    features = CheckFeatures(parser)
    pluginmanager.register(features, _PLUGIN)
    pluginmanager.hook.pytest_msprobe_register_check_features.call_historic(kwargs={"registry": features})


def features_of(config: pytest.Config) -> CheckFeatures:
    """Return the features of this run."""
    features = config.pluginmanager.get_plugin(_PLUGIN)
    assert isinstance(features, CheckFeatures)
    return features


def features_without_session() -> CheckFeatures:
    """Return the features of extensions, where there is no pytest session."""
    return register(_HOOK, CheckFeatures())
