"""Compilations of MindSpore: graphs of cells, and functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from mindspore.common import api

CELLS: Final = api._CellGraphExecutor
FUNCTIONS: Final = api._JitExecutor


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
