"""The ``msprobe_live`` fixture: the calls of a test are judged while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.reports.text import printable
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import rerun_test_command
from pytest_msprobe.run.setups import setups_key
from pytest_msprobe.run.test_checks import checks_of, fail_subtests
from pytest_msprobe.run.usage_errors import fail_on_user_error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_msprobe.extensions.live_checks.options import LiveKeywords
    from pytest_msprobe.extensions.live_checks.session import LiveChecks

_FIXTURE = "msprobe_live"


class TestLive:
    """The live checks of one test."""

    __test__ = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    @contextlib.contextmanager
    def __call__(self, **options: Unpack[LiveKeywords]) -> Iterator[LiveChecks]:
        """Judge the calls inside; at the end each wrong record is a failed subtest, before pytest 9 one failure.

        The options are those of ``pytest_msprobe.live`` but for the policy, which is the run's; ``on_failure`` is
        ``fail``. Fails the test where nothing was judged; what the code inside raises goes first.
        """
        __tracebackhide__ = True
        config, item = self._request.config, self._request.node
        with contextlib.ExitStack() as checking:
            with fail_on_user_error(_FIXTURE):
                setup = config.stash[setups_key].setup_for(PYTORCH)
                from pytest_msprobe.extensions.live_checks.judge import NamedPolicy
                from pytest_msprobe.extensions.live_checks.session import first_names, judged_live

                run = config.stash[options_key]
                policy, rerun = NamedPolicy(run.policy, run.level), rerun_test_command(item, "")
                checks = checking.enter_context(judged_live({"on_failure": "fail", **options}, setup, policy, rerun))
            yield checks
        with fail_on_user_error(_FIXTURE):
            checks.require_journal()
        for reason, count in checks.skips.most_common():
            of_all = f"{count} of {checks.counts.total()} records"
            checks_of(self._request.node).add_unjudged(f"{_FIXTURE}: {of_all}: {reason}")
        if checks.never_judged:
            checks_of(self._request.node).add_unjudged(f"{_FIXTURE}: never judged: {first_names(checks.never_judged)}")
        if checks.on_failure == "fail" and checks.failed:
            fail_subtests(self._request, checks.failed, checks.rerun)
        if not checks.counts.keys() - {"skip"}:
            pytest.fail(printable(f"{_FIXTURE}: nothing was judged; {checks}"), pytrace=False)
