"""A worker that dies and cannot be started again, as those of a lost host: the run does without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.config import default_plugins, essential_plugins

from tests.support.dumps.dump_files import Json
from tests.support.hosts.lost_workers import LOSING, assert_one_is_lost, losing_one_of_two

#: xdist sends reports by the hooks of the first.
OPTIONAL = tuple(name for name in default_plugins if name not in ("reports", *essential_plugins))

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, write_dump: Callable[..., Path], records: Json) -> Run:
    """Search three calls for overflow by two workers, of which one is lost."""
    write_dump(records)

    def searched(*arguments: str, conftest: str = LOSING) -> pytest.RunResult:
        workers = losing_one_of_two(pytester, conftest)
        return pytester.runpytest_subprocess("--msprobe-overflow=dump.json", *workers, *arguments)

    return searched


@pytest.mark.slow
def test_plugins_are_not_notified_of_a_worker_that_never_started(run: Run, records: Json) -> None:
    # pytest-metadata looks for a key of its own in what a worker sent at its end.
    result = run("-p", "pytest_metadata.plugin")
    assert_one_is_lost(result, records)
    result.stdout.fnmatch_lines(
        ["msprobe: --tx popen//python=*: No such file or directory; the run goes on without it"]
    )


@pytest.mark.slow
def test_a_run_whose_last_worker_is_lost_ends_in_one_line(run: Run) -> None:
    result = run(conftest=LOSING.replace("while not", "os._exit(7)\n    while not"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "and no worker is left" in result.stderr.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.slow
@pytest.mark.parametrize("off", [OPTIONAL[::3], OPTIONAL[1::3], OPTIONAL[2::3], OPTIONAL], ids=" ".join)
def test_a_run_goes_on_without_a_lost_worker_and_plugins_of_pytest(
    run: Run, records: Json, off: tuple[str, ...]
) -> None:
    assert_one_is_lost(run(*(word for name in off for word in ("-p", f"no:{name}"))), records)
