"""Recording from tests: the ``msprobe_dump`` fixture and ``--msprobe-record``."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.reader import find_dumps, read_dump
from pytest_msprobe.item import PrecisionError
from pytest_msprobe.options import options_key, rerun_command, test_argument
from pytest_msprobe.worker import worker_key

if TYPE_CHECKING:
    from msprobe_hooks.torch.session import Model, Session
    from pytest_msprobe.results import DirectionResult

MARKER = "msprobe_record"

_MODULE_LEVELS = ("L0", "mix")


@pytest.fixture
def msprobe_dump_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of ``msprobe_hooks.record`` for ``msprobe_dump``; override it in ``conftest.py``.

    By default these are the ``key=value`` lines of the ini setting ``msprobe_record_options``.
    """
    return _ini_options(request.config)


@pytest.fixture
def msprobe_dump(
    request: pytest.FixtureRequest, tmp_path: Path, msprobe_dump_options: dict[str, Any]
) -> Iterator[TestDump]:
    """Record the API calls of this test, and check them at once with ``msprobe_dump.check()``.

    Recording starts with the test. Where modules are recorded (levels ``L0`` and ``mix``) it starts with
    ``msprobe_dump.start(model)``. Options come from the marker ``msprobe_record``, else from ``msprobe_dump_options``.
    """
    options = msprobe_dump_options | _marker_options(request.node)
    request.node.stash[_dump_key] = dump = TestDump(request, tmp_path / "msprobe_dump", options)
    yield dump
    dump.close()


_dump_key = pytest.StashKey["TestDump"]()


class TestDump:
    """What one test recorded."""

    __test__ = False

    def __init__(self, request: pytest.FixtureRequest, path: Path, options: dict[str, Any]) -> None:
        from msprobe_hooks.config import settings
        from msprobe_hooks.record import open_session

        #: The folder that holds the dump.
        self.path = path
        self._request = request
        try:
            given = {"level": "L1", **options}
            framework = given.pop("framework", "pytorch")
            self._session: Session = open_session(settings(path, **given), None, framework)
        except ConfigError as error:
            pytest.fail(f"msprobe_dump: {error}", pytrace=False)
        self._is_closed = False

        if options.get("level", "L1") not in _MODULE_LEVELS:
            self.start()

    def start(self, model: Model | None = None) -> None:
        """Start recording, or go on after ``stop``. ``model`` is the module, or modules, whose calls are recorded."""
        try:
            self._session.start(model)
        except (ConfigError, RecordingError) as error:
            pytest.fail(f"msprobe_dump: {error}", pytrace=False)

    def stop(self) -> None:
        """Pause recording."""
        self._session.stop()

    def check(self) -> list[DirectionResult]:
        """End the recording, replay it on the device and report each wrong API as a failed subtest of this test.

        Returns what came of each API record. Fails the test where nothing was recorded.
        """
        __tracebackhide__ = True
        self.require_records()
        config = self._request.config
        worker = config.stash[worker_key]
        dumps = [read_dump(path) for path in find_dumps(self.path)]
        results = [worker.check(dump, name) for dump in dumps for name in dump.api_names]
        wrong = [result for result in results if result.verdict.outcome == "fail"]
        for result in wrong:
            with self._request.getfixturevalue("subtests").test(msg=result.record):
                raise PrecisionError(result, self._rerun(), config.get_verbosity())
        return results

    def close(self) -> None:
        """End the recording; its files are complete."""
        if not self._is_closed:
            self._is_closed = True
            self._session.close()

    def require_records(self) -> None:
        """End the recording and fail the test where it recorded nothing, with the reason."""
        __tracebackhide__ = True
        self.close()
        if self._session.summary.records == 0:
            pytest.fail(f"msprobe_dump: {self._session.summary}", pytrace=False)

    def _rerun(self) -> str:
        item = self._request.node
        return rerun_command(item.config.stash[options_key], test_argument(item))


@contextlib.contextmanager
def recorded(item: pytest.Item) -> Iterator[None]:
    """Record a marked test below the folder of ``--msprobe-record``, in a folder named after its id.

    A test that uses ``msprobe_dump`` fails where nothing was recorded.
    """
    folder = item.config.getoption("msprobe_record")
    if folder and item.get_closest_marker(MARKER) is not None:
        from msprobe_hooks import record

        path = item.config.invocation_params.dir / folder / folder_name(item.nodeid)
        with record(path, **(_ini_options(item.config) | _marker_options(item))):
            yield
    else:
        yield
    if _dump_key in item.stash:
        item.stash[_dump_key].require_records()


def folder_name(nodeid: str) -> Path:
    """Return a relative folder for a test id; ids that differ get folders that differ."""
    parts = [re.sub(r"[^\w.\[\]=-]", "_", part) for part in re.split(r"/|::", nodeid)]
    if "/".join(parts) != nodeid.replace("::", "/"):
        parts[-1] += f"-{hashlib.blake2b(nodeid.encode(), digest_size=4).hexdigest()}"
    return Path(*(part if part.strip(".") else "_" for part in parts))


def _marker_options(item: Any) -> dict[str, Any]:
    marker = item.get_closest_marker(MARKER)
    return dict(marker.kwargs) if marker else {}


def _ini_options(config: pytest.Config) -> dict[str, Any]:
    lines: list[str] = config.getini("msprobe_record_options")
    if not lines:
        return {}
    import yaml

    options = {}
    for line in lines:
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise pytest.UsageError(f"msprobe_record_options: {line!r} is not of the form key=value")
        options[key] = yaml.safe_load(value)
    return options
