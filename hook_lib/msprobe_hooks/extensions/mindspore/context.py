"""Settings of MindSpore in this process, and its compilations: graphs of cells, and functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import mindspore
from mindspore.common import api
from mindspore.communication import GlobalComm, get_rank

from msprobe_hooks.errors import ConfigError, RecordingError

_OLDEST = (2, 9)

CELLS: Final = api._CellGraphExecutor
FUNCTIONS: Final = api._JitExecutor


def process_rank() -> int | None:
    """Return this process's rank, None where communication is not initialised."""
    return int(get_rank()) if GlobalComm.INITED else None


def require_backward_passes() -> None:
    """Raise RecordingError where MindSpore does not say which backward pass runs, and what its nodes are."""
    version = tuple(int(part) for part in mindspore.__version__.split(".")[:2])
    if version < _OLDEST:
        raise RecordingError(
            f"MindSpore {mindspore.__version__} cannot be recorded, as it does not say which call a gradient is of; "
            "install MindSpore 2.9 or newer, or record with msprobe, whose dumps can be checked here"
        )


def is_pynative() -> bool:
    """Return whether calls run one by one, and not as a graph."""
    return bool(mindspore.get_context("mode") == mindspore.PYNATIVE_MODE)


def require_pynative() -> None:
    """Raise ConfigError where no call can be seen: in graph mode."""
    if not is_pynative():
        raise ConfigError("mode", "GRAPH_MODE", "mindspore.PYNATIVE_MODE, as calls inside a graph cannot be observed")


class Compilations:
    """Has what some executors compile compiled inside of a context, until ``end``."""

    def __init__(self, executors: tuple[Any, ...], context: Callable[[], AbstractContextManager[None]]) -> None:
        self._former: list[tuple[Any, Callable[..., Any]]] = []
        for executor in executors:
            compile_ = executor.compile
            self._former.append((executor, compile_))
            executor.compile = _inside(context, compile_)

    def end(self) -> None:
        """Restore their compilation; a second time does nothing."""
        for executor, compile_ in self._former:
            executor.compile = compile_
        self._former.clear()


def _inside(context: Callable[[], AbstractContextManager[None]], compile_: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        with context():
            return compile_(*args, **kwargs)

    return compiled
