"""The ``msprobe_monitor`` fixture and marker: a test's training fails where its series break a rule."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.errors import ConfigError, MonitorError
from msprobe_standards.validation import shown
from pytest_msprobe.reports.github import first_of_several
from pytest_msprobe.reports.junit import drop_properties, verdict_properties
from pytest_msprobe.reports.text import printable
from pytest_msprobe.run.item import PrecisionError, PrecisionWarning
from pytest_msprobe.run.rerun_command import rerun_test_command
from pytest_msprobe.run.usage_errors import fail_on_user_error

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Unpack

    from msprobe_hooks.extensions.monitor.watch.config import WatchOptions
    from msprobe_hooks.extensions.monitor.watch.watcher import Watcher
    from pytest_msprobe.results.result import DirectionResult

    class MonitorOptions(WatchOptions, total=False):
        """Options of ``msprobe_monitor``: how series are judged, and the arguments of ``watch``."""

        policy: str
        dtype: str | None
        what: Sequence[str]
        micro_batches: int
        first_step: int


MARKER = "msprobe_monitor"

# What the default policy judges.
_WATCHED: dict[str, Any] = {
    "what": ("activations", "activation_gradients", "gradients", "parameters"),
    "statistics": ("norm", "min", "max", "nans"),
    # Beyond these there is nothing of a float64 of ordinary size.
    "ndigits": 16,
}


_NO_STEP = (
    "no step was monitored; a step ends when the optimizer steps or, without one, at end_step() of the watcher; "
    "start_step, every and collect_times select steps"
)
# What is judged is read again.
_FORMATS = ("csv", "parquet")

_monitor_key: pytest.StashKey[TrainingMonitor] = pytest.StashKey()


def monitor_of(item: pytest.Item, path: Path) -> TrainingMonitor:
    """Return what watches the trainings of a test."""
    drop_properties(item.user_properties)
    monitor = item.stash[_monitor_key] = TrainingMonitor(item, path)
    return monitor


def require_training(item: pytest.Item) -> None:
    """Fail a test that asked for a training to be watched, by the fixture or a marker of its own, and showed none."""
    monitor = item.stash.get(_monitor_key, None)
    if monitor is None and any(marker.name == MARKER for marker in item.own_markers):
        pytest.fail(f"{MARKER}: nothing was monitored: the test has the marker, but not the fixture", pytrace=False)
    if monitor is not None and monitor.count == 0:
        pytest.fail(f"{MARKER}: nothing was monitored; train inside `with {MARKER}(model, optimizer):`", pytrace=False)


class TrainingMonitor:
    """The trainings of one test, ``count`` until now."""

    def __init__(self, item: pytest.Item, path: Path) -> None:
        self.count = 0
        self._item = item
        self._path = path

    def __call__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Any = None,
        **options: Unpack[MonitorOptions],
    ) -> WatchedTraining:
        """Return the context in which a training is watched; where it ends, its series are judged.

        The options ``policy`` and ``dtype`` are as ``--msprobe-policy`` and ``msprobe_monitor_dtype``, the others
        those of ``msprobe_hooks.watch``. Those of the marker hold where they are not given. Series are written into the
        test's ``tmp_path``.
        """
        __tracebackhide__ = True
        self.count += 1
        marker = self._item.get_closest_marker(MARKER)
        if marker is not None and marker.args:
            given_by_place = ", ".join(map(shown, marker.args))
            pytest.fail(f"{MARKER}: {given_by_place}: options need names, as in every=10", pytrace=False)
        settings = {"policy": "default", "dtype": None, **_WATCHED, **(marker.kwargs if marker else {}), **options}
        return WatchedTraining(self._item, self._path / f"training{self.count}", (model, optimizer), settings)


class WatchedTraining:
    """A training that is watched, and judged by the rules of a policy where its context ends.

    That raises PrecisionError, an AssertionError, for the first value that breaks a rule. What the training itself
    raises passes.
    """

    def __init__(self, item: pytest.Item, path: Path, training: tuple[Any, Any], options: dict[str, Any]) -> None:
        self._item = item
        self._path = path
        self._training = training
        self._options = options
        self._watching = contextlib.ExitStack()

    def __enter__(self) -> Watcher:
        """Begin to watch."""
        __tracebackhide__ = True
        from msprobe_hooks.extensions.monitor.watching import watch
        from pytest_msprobe.extensions.monitor.judging import load_policy

        options = dict(self._options)
        policy, dtype, format = options.pop("policy"), options.pop("dtype"), options.get("format", "csv")  # noqa: A001
        with fail_on_user_error(MARKER):
            self._rules = load_policy(policy, dtype)
            if format not in _FORMATS:
                raise ConfigError("format", format, " or ".join(_FORMATS) + ", which can be judged")
            self._watcher = self._watching.enter_context(watch(*self._training, self._path, **options))
        return self._watcher

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Judge what was watched, unless the training has raised."""
        __tracebackhide__ = True
        if error is not None:
            self._watching.__exit__(kind, error, traceback)
            return
        from pytest_msprobe.extensions.monitor.judging import judge_run

        watcher = self._watcher
        with fail_on_user_error(MARKER):
            self._watching.close()
            if not watcher.plan.is_for(watcher.rank):
                return
            if watcher.folder is None or watcher.collected == 0:
                raise MonitorError(_NO_STEP)
            failed, warned = judge_run(watcher.folder, self._rules)
        for result in warned:
            warnings.warn(PrecisionWarning(printable(f"{result.record}: {result.reason}")), stacklevel=2)
        if failed:
            self._fail(failed)

    def _fail(self, failed: Sequence[DirectionResult]) -> None:
        __tracebackhide__ = True
        first = first_of_several([replace(result, notes=()) for result in failed], "series")
        advice = f"All series are in {self._path}: pytest --msprobe-monitor={self._path}"
        self._item.user_properties += verdict_properties(first)
        rerun = rerun_test_command(self._item, "")
        raise PrecisionError(replace(first, notes=(*first.notes, advice)), rerun, self._item.config.get_verbosity())
