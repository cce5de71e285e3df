"""The frameworks by the name that dumps give them; nothing of a framework is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.engine.framework_names import KERNELS, PYTORCH
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.installed_extensions import register

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.framework import Framework


def _nothing() -> None:
    """Return None: nothing is missing, and nothing to be done."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """Form of msprobe's result tables of a framework: words of their headers, columns by metric, spelling of dtypes.

    ``in_result`` and ``target_dtype`` are the names of the call's column and of that of the target's dtype.
    """

    in_result: str
    target_dtype: str
    metrics: Mapping[str, str]
    spell_dtype: Callable[[str], str]

    @property
    def result_header(self) -> tuple[str, ...]:
        """The columns of the table of calls."""
        return (self.in_result, "Forward Test Success", "Backward Test Success", "Message")

    @property
    def details_header(self) -> tuple[str, ...]:
        """The columns of the table of outputs."""
        return ("API Name", "Bench Dtype", self.target_dtype, "Shape", *self.metrics, "Status", "Message")


@dataclass(frozen=True, slots=True)
class FrameworkEntry:
    """Entry of the registry: how a framework is started in a process, and what it needs.

    ``open`` imports and starts it, and raises DeviceError where that fails. ``missing`` returns what keeps this
    installation from running its calls and what to do; None for nothing. ``prepare`` is called before torch is imported
    in a process that is going to run its calls. ``table_form`` is that of msprobe's tables of its dumps; None for
    PyTorch's.
    """

    open: Callable[[], Framework]
    missing: Callable[[], str | None] = _nothing
    prepare: Callable[[], None] = _nothing
    table_form: TableForm | None = None


class FrameworkRegistry:
    """Frameworks by name; extensions and plugins add theirs in ``pytest_msprobe_register_frameworks``."""

    def __init__(self) -> None:
        self._entries = {PYTORCH: FrameworkEntry(_open_torch)}
        register("pytest_msprobe_register_frameworks", self)

    def add(self, name: str, entry: FrameworkEntry) -> None:
        """Make a framework known under the name that dumps give it, in place of a former one of that name."""
        self._entries[name] = entry

    def get(self, name: str) -> FrameworkEntry:
        """Return the framework of that name. Raises DeviceError that lists the known names where there is none."""
        if name not in self._entries:
            names = [entry for entry in self._entries if entry != KERNELS]
            raise DeviceError(f"unknown framework {name!r}; known are {', '.join(names)}{did_you_mean(name, names)}")
        return self._entries[name]

    def table_form(self, name: str) -> TableForm | None:
        """Return the form of msprobe's tables of a framework's dumps; None for PyTorch's, and for an unknown name."""
        return self._entries[name].table_form if name in self._entries else None


@cache
def frameworks() -> FrameworkRegistry:
    """Return the frameworks of this process."""
    return FrameworkRegistry()


def missing_piece(name: str) -> str | None:
    """Return what keeps this installation from running a framework's calls and what to do; None for nothing."""
    try:
        return frameworks().get(name).missing()
    except DeviceError as error:
        return str(error)


def framework_named(name: str) -> Framework:
    """Return the framework that dumps call ``name``; imports and starts it. Raises DeviceError where that fails."""
    entry = frameworks().get(name)
    missing = entry.missing()
    if missing is not None:
        raise DeviceError(missing)
    return entry.open()


def _open_torch() -> Framework:
    from pytest_msprobe.engine.torch_framework import TorchFramework

    return TorchFramework()
