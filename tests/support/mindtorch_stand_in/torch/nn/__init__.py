from __future__ import annotations

from mindspore.nn import Cell

from . import functional

__all__ = ["Module", "functional"]


class Module(Cell):  # type: ignore[misc]
    pass
