"""Reports of workers come to the controller as they were."""

from __future__ import annotations

from typing import Any

import execnet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_msprobe.run.report_serialization import pack_report, unpack_report
from pytest_msprobe.run.session_needs import needs_session, start_session

# What execnet sends, of text what it takes.
_texts = st.text("aé", max_size=3)
_scalars = st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.floats(allow_nan=False) | _texts
_values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(_scalars, max_size=3)
        | st.dictionaries(_scalars, inner, max_size=3)
    ),
    max_leaves=8,
)
_names = st.sampled_from(["nodeid", "location", "sections", "user_properties", "of a plugin"])
_reports = st.dictionaries(_names, _values)


@pytest.fixture
def worker(pytester: pytest.Pytester) -> pytest.Config:
    config = pytester.parseconfig()
    config.workerinput = {}  # type: ignore[attr-defined]
    # A worker has the hooks of a session, whatever it runs.
    assert needs_session(config)
    start_session(config)
    return config


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(report=_reports)
def test_whatever_a_report_holds_keeps_its_types(worker: pytest.Config, report: dict[str, Any]) -> None:
    received = execnet.loads(execnet.dumps(pack_report(worker, dict(report))))
    unpack_report(received)
    assert _with_types(received) == _with_types(report)


def test_a_report_of_pytest_itself_is_packed_whole(worker: pytest.Config) -> None:
    report = pytest.TestReport("f::x", ("f", None, "x"), {"x": 1}, "passed", None, "call", user_properties=[("a", "b")])
    sent = worker.hook.pytest_report_to_serializable(config=worker, report=report)
    assert [type(value) for value in sent.values()] == [bytes]


def _with_types(value: Any) -> Any:
    """Return a value with its type, and those of all that it holds; -0.0 is not 0.0."""
    if isinstance(value, dict):
        return dict, {repr(key): _with_types(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [_with_types(item) for item in value]
    return type(value), sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
