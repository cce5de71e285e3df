"""The golden definition of each API; nothing here imports torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_msprobe.installed_extensions import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ReferenceRegistry:
    """Golden definitions by API name, ``{Type}.{api}`` such as ``NPU.npu_rms_norm``.

    A new registry holds the definitions of extensions; each is imported, and torch with it, when first asked for.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._modules: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        register("pytest_msprobe_register_references", self)

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Register ``function`` as the golden definition of the API ``name``.

        ``function`` takes the API's own arguments, its tensors on the CPU and in raised precision, and returns
        what the API returns. Differentiable torch code also serves the backward call.

        Raises ValueError when ``name`` is not of the form ``{Type}.{api}`` or already has a definition, and
        TypeError when ``function`` cannot be called.
        """
        type_, dot, api = name.partition(".")
        if not (type_ and dot and api):
            raise ValueError(f"{name!r} is not an API name; write {{Type}}.{{api}}, as in NPU.npu_rms_norm")
        if not callable(function):
            raise TypeError(f"the golden definition of {name} must be callable, not {type(function).__name__}")
        if name in self._modules or name in self._functions:
            raise ValueError(
                f"{name} has two golden definitions: {self._place_of(name)} and {_full_name(function)}; "
                "register one of them only"
            )
        self._functions[name] = function

    def add_module(self, name: str, module: str) -> None:
        """Register the function of a module, called as the API is, as the golden definition of the API ``name``."""
        self._modules[name] = module

    def leave_out(self, name: str, reason: str) -> None:
        """Register why the API ``name`` has no golden definition; its records are skipped with that reason."""
        self._left_out[name] = reason

    def reason_left_out(self, name: str) -> str | None:
        """Return why the API ``name`` has no golden definition, None where that is not known."""
        return self._left_out.get(name)

    def modules(self) -> Iterator[tuple[str, str]]:
        """Yield each API whose definition a module has, and that module."""
        yield from self._modules.items()

    def get(self, name: str) -> Callable[..., Any] | None:
        """Return the golden definition of the API ``name``, or None where there is none.

        An operator that level aten recorded with its overload, ``Aten.npu_rms_norm.default``, has that of the operator
        or, where torch_npu has an API of this name, of the API.
        """
        registered = next(
            (spelling for spelling in _spellings(name) if spelling in self._modules or spelling in self._functions),
            name,
        )
        if registered in self._modules and registered not in self._functions:
            module = import_module(self._modules[registered])
            self._functions[registered] = getattr(module, registered.rpartition(".")[2])
        return self._functions.get(registered)

    def names(self) -> tuple[str, ...]:
        """Return the names of all APIs that have a golden definition, sorted."""
        return tuple(sorted(self._modules.keys() | self._functions.keys()))

    def _place_of(self, name: str) -> str:
        if name in self._modules:
            return f"{self._modules[name]}.{name.rpartition('.')[2]}"
        return _full_name(self._functions[name])


def _spellings(name: str) -> Iterator[str]:
    yield name
    type_, _, api = name.partition(".")
    if type_ == "Aten":
        operator = api.partition(".")[0]
        yield f"Aten.{operator}"
        yield f"NPU.{operator}"


def _full_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return f"{getattr(function, '__module__', '?')}.{name}"
