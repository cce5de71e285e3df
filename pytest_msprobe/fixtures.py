"""The ``precision`` fixture and the ``precision_standard`` marker: precision checks of the user's own functions."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_msprobe.containment.settling import contained
from pytest_msprobe.devices.device import DeviceError
from pytest_msprobe.frameworks.registry import PYTORCH
from pytest_msprobe.item import PrecisionError, PrecisionWarning, verdict_properties
from pytest_msprobe.options import options_key, rerun_command, test_argument
from pytest_msprobe.worker import worker_key

if TYPE_CHECKING:
    from msprobe_standards import Standard
    from pytest_msprobe.recorded import Call
    from pytest_msprobe.replay.trial import Setup
    from pytest_msprobe.results import DirectionResult


def precision_standard(name: str, **limits: float) -> pytest.MarkDecorator:
    """Let a test's ``precision.check`` judge by this standard, as in ``@precision_standard("ulp", max_ulp=2)``."""
    return pytest.mark.precision_standard(name, **limits)


@pytest.fixture
def precision(request: pytest.FixtureRequest) -> Precision:
    """Check functions of your own against a golden definition, on the device of ``--msprobe-device``."""
    return Precision(request.node, request.config)


class Precision:
    """Checks made by one test."""

    def __init__(self, item: pytest.Item, config: pytest.Config) -> None:
        self._item = item
        self._config = config

    def check(
        self,
        function: Callable[..., Any],
        *args: Any,
        golden: Callable[..., Any] | None = None,
        backward: bool = False,
        **kwargs: Any,
    ) -> list[DirectionResult]:
        """Run a function on the device and compare it with its golden definition in raised precision on the CPU.

        ``function`` is a function, an autograd function's ``apply`` or an ``nn.Module`` (whose parameters count as
        inputs). ``args`` and ``kwargs`` hold CPU tensors in the dtypes under test. ``golden`` defaults to
        ``function`` itself. ``backward`` also compares the gradients of every tensor that requires grad, for random
        gradients of the outputs. Returns what came of forward and backward.

        Raises PrecisionError, an AssertionError, where a result is wrong.
        """
        __tracebackhide__ = True
        from pytest_msprobe.replay.user_check import check_function

        setup = self._setup(PYTORCH)
        results = check_function(
            function,
            args,
            kwargs,
            name=self._item.name,
            setup=setup,
            golden=golden,
            backward=backward,
            standard=self._standard(),
        )
        for result in results:
            self._report(result)
        return results

    def check_recorded(
        self, function: Callable[..., Any], calls: Mapping[str, Call], record: str, *, seed: int = 0
    ) -> DirectionResult:
        """Replay one record of a dump with ``function`` and judge it as ``--msprobe-dump`` does.

        ``calls`` holds the call by the record's name without direction; the direction says what is judged.
        ``function`` is one of the framework that the call states. Tensor files are looked for beside the test's module.
        Inputs depend on the seed, the record's name and the argument alone. The golden definition is that of the API
        that the record names, where there is one, else ``function``.

        Raises PrecisionError where a result is wrong, KeyError where ``calls`` lacks the call.
        """
        __tracebackhide__ = True
        from pytest_msprobe.replay.check import Replay

        key, _, direction = record.rpartition(".")
        worker = self._config.stash[worker_key]
        call = calls[key]
        setup = dataclasses.replace(self._setup(call.framework), seed=seed)
        replay = Replay(call.replayed_as(record, self._item.path.parent), setup, function=function)
        judge = replay.backward if direction == "backward" else replay.forward
        result = contained(self._config, record, judge)
        self._item.user_properties += [
            *verdict_properties(result),
            ("msprobe.device", worker.start.device),
            ("msprobe.math_modes", worker.start.modes_in_words),
            ("msprobe.seed", str(seed)),
        ]
        self._report(result)
        return result

    def _setup(self, framework: str) -> Setup:
        __tracebackhide__ = True
        try:
            return self._config.stash[worker_key].setup_for(framework)
        except DeviceError as error:
            pytest.fail(str(error), pytrace=False)

    def _standard(self) -> Standard | None:
        from msprobe_standards import standard

        marker = self._item.get_closest_marker("precision_standard")
        if marker is None:
            return None
        try:
            return standard(*marker.args, **marker.kwargs)
        except (TypeError, ValueError) as error:
            raise pytest.UsageError(f"{self._item.nodeid}: precision_standard: {error}") from None

    def _report(self, result: DirectionResult) -> None:
        __tracebackhide__ = True
        verdict = result.verdict
        if verdict.outcome == "skip":
            pytest.skip(verdict.reason)
        if verdict.outcome == "fail":
            raise PrecisionError(result, self._rerun(), self._config.get_verbosity())
        if verdict.outcome == "warn":
            warnings.warn(PrecisionWarning(f"{result.record}: {verdict.reason}"), stacklevel=3)

    def _rerun(self) -> str:
        return rerun_command(self._config.stash[options_key], test_argument(self._item))
