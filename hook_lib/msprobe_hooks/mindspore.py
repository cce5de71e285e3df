"""Public names of MindSpore's recording and watching, as msprobe calls them; importing one imports MindSpore.

A script moves over by ``from msprobe_hooks.mindspore import PrecisionDebugger``.
"""

from __future__ import annotations

from typing import Any

from msprobe_hooks.installed_extensions import exported, exports

__all__ = [*exports("MINDSPORE_EXPORTS")]


def __getattr__(name: str) -> Any:
    value = globals()[name] = exported("MINDSPORE_EXPORTS", name, __name__)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
