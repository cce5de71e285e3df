"""What tests of runs share: dumps written on the spot, runs of pytest over them, reports read back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

# Tensors of tests are small: threads that wait for each other on a busy machine take ten times as long as one alone.
# Read when torch is loaded, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Loaded once here: pytester drops what an inner run in this process loads, and torch cannot be loaded twice, nor can
# its compiler, which optimizers load when they first step, and whose operators register once in a process, nor the C
# half of PyYAML. Of what a session of ours and its modes load, a package would keep the dropped modules as attributes.
import torch
import torch._dynamo  # noqa: F401
import yaml  # noqa: F401
from hypothesis import settings

import pytest_msprobe
from pytest_msprobe.installed_extensions import extensions
from tests.support import runs
from tests.support.conftests import STANDARD_THAT_WARNS, device_after_each_call
from tests.support.dumps import dump_files as dumps
from tests.support.dumps.dump_files import Json
from tests.support.forked import Forked, forked_from_torch
from tests.support.requirements import VARIABLE

# All of ours, for the same reason: an inner run would load dozens of modules anew. What a framework needs that is not
# installed here stays out.
for module in walk_packages(pytest_msprobe.__path__, "pytest_msprobe."):
    with suppress(ImportError):
        import_module(module.name)

# No test depends on how fast or how busy a machine is. CI tries the same each time; elsewhere the search goes on.
settings.register_profile("untimed", deadline=None, derandomize=VARIABLE in os.environ)
settings.load_profile("untimed")

OTHER_PLUGINS = ("hypothesispytest", "html", "metadata", "rerunfailures")


def pytest_collection_finish() -> None:
    """Write bytecode for test modules alone: of two versions of a file in one second, the second would not be read."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Run programs in processes that need not load torch."""
    with forked_from_torch() as forked:
        yield forked


@pytest.fixture
def pytester(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> pytest.Pytester:
    """Leave other plugins out of inner runs, which would load them each time; ``-p NAME`` has one all the same.

    Inner runs take the fast path through pytest unless this run is started with ``-o msprobe_fast_path=false``.
    """
    words = [f"-p no:{name}" for name in OTHER_PLUGINS]
    if "fast_path" in extensions() and not pytestconfig.getini("msprobe_fast_path"):
        words.append("-o msprobe_fast_path=false")
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(words))
    return pytester


@pytest.fixture
def element() -> Callable[..., Json]:
    """Make the element of a recorded tensor."""
    return dumps.tensor


@pytest.fixture
def forward() -> Callable[..., Json]:
    """Make the body of a forward record; the output defaults to one tensor like the first argument."""
    return dumps.forward


@pytest.fixture
def write_dump(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Write records as a ``dump.json``, by default in the folder of the test, and return its path."""

    def write(records: Json, folder: str | Path = ".", **top: Any) -> Path:
        return dumps.write_dump(pytester.path / folder, records, **top)

    return write


@pytest.fixture
def records() -> Json:
    """Return three calls, two of them with a backward record, that every healthy device computes."""
    return dumps.three_calls()


@pytest.fixture
def check(pytester: pytest.Pytester) -> Callable[..., runs.Checked]:
    """Run pytest with these arguments, in this process unless ``apart`` says otherwise, and read its JUnit file."""
    return partial(runs.check, pytester)


@pytest.fixture
def usage_error(
    check: Callable[..., runs.Checked], write_dump: Callable[..., Path], records: Json
) -> Callable[..., str]:
    """Check a dump with wrong arguments, which end the run, and return what is reported."""

    def errors(*arguments: str) -> str:
        checked = check("--msprobe-dump", write_dump(records), *arguments)
        assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
        return checked.errors

    return errors


@pytest.fixture
def make_device(pytester: pytest.Pytester) -> Callable[[str], None]:
    """Register the device ``faulty``: a simulated one that runs these lines once ``result`` has been computed."""

    def make(statements: str) -> None:
        pytester.makeconftest(device_after_each_call(statements))

    return make


@pytest.fixture
def always_warns(pytester: pytest.Pytester) -> list[str]:
    """Register a standard whose every verdict is a warning, and return the options that make it judge."""
    pytester.makeconftest(STANDARD_THAT_WARNS)
    (pytester.path / "doubtful.yaml").write_text("rules: [{standard: doubtful}]")
    return ["--msprobe-policy=doubtful.yaml"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Open a browser for the tests of a module."""
    from tests.support.browser.chromium import open_browser

    with open_browser() as driver:
        yield driver
