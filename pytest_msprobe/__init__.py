"""Precision checks as pytest test cases.

PYTEST_DONT_REWRITE, as `import_hook` sees to: pytest warns of plugins that it was to rewrite and could not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_msprobe import import_hook

if TYPE_CHECKING:
    from pytest_msprobe.engine.check_call import check_call
    from pytest_msprobe.extensions.explore.hypothesis_tensors import tensors
    from pytest_msprobe.extensions.live_checks.dispatch.ptdbg import PtdbgDispatch
    from pytest_msprobe.extensions.live_checks.session import LiveChecks, live
    from pytest_msprobe.fixtures.precision import precision_standard
    from pytest_msprobe.python_api.check_dump import CheckedRecord, check_dump
    from pytest_msprobe.python_api.compare_dumps import ComparedRecord, compare_dumps
    from pytest_msprobe.results.result import CallResult

_HOMES = {
    "CallResult": "results.result",
    "PtdbgDispatch": "extensions.live_checks.dispatch.ptdbg",
    "ComparedRecord": "python_api.compare_dumps",
    "CheckedRecord": "python_api.check_dump",
    "check_call": "engine.check_call",
    "check_dump": "python_api.check_dump",
    "compare_dumps": "python_api.compare_dumps",
    "LiveChecks": "extensions.live_checks.session",
    "live": "extensions.live_checks.session",
    "precision_standard": "fixtures.precision",
    "tensors": "extensions.explore.hypothesis_tensors",
}

__all__ = [
    "CallResult",
    "CheckedRecord",
    "ComparedRecord",
    "LiveChecks",
    "PtdbgDispatch",
    "check_call",
    "check_dump",
    "compare_dumps",
    "live",
    "precision_standard",
    "tensors",
]


import_hook.begin()


def __getattr__(name: str) -> Any:
    # The engine needs torch; pytest imports this package at every start and must not pay for that.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
