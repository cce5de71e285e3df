"""Modules of a package named msprobe, by which programs written for it use this recorder, and what writes it.

What is imported from them are names of `msprobe_hooks`, of `msprobe_hooks.mindspore` and, for ``PtdbgDispatch``, of
`pytest_msprobe`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_msprobe.errors import CommandError

_FOLDERS = ("", ".common", ".common.utils", ".debugger", ".dump", ".dump.debugger", ".monitor")
_PLACES = (*_FOLDERS, ".debugger.precision_debugger", ".dump.debugger.precision_debugger", ".monitor.module_hook")
#: The modules of msprobe 1.2.2 and 26.2.0 that programs import, without ``msprobe.``, and where their names are found;
#: the last ones hold modules alone.
MODULES = {
    **{f"pytorch{place}": "msprobe_hooks" for place in _PLACES},
    **{f"mindspore{place}": "msprobe_hooks.mindspore" for place in _PLACES},
    **dict.fromkeys(("pytorch.online_dispatch", "pytorch.online_dispatch.dispatch"), "pytest_msprobe"),
    **dict.fromkeys(("core", "core.common"), ""),
}

_COMPARE = "compare the recordings afterwards: pytest --msprobe-compare"
_ENVIRONMENT = "write_environment of msprobe_hooks records what a training depends on"
_SAVE = "PrecisionDebugger.save records a variable at level debug"
_CANN = "it needs CANN's graphs, which this recorder does not read"
#: Names and modules of msprobe that are not here, and what is.
ABSENT = {
    "compare": _COMPARE,
    "compare_distributed": _COMPARE,
    "random_save": _ENVIRONMENT,
    "MsprobeInitStep": "call PrecisionDebugger.set_init_step(step) before the training",
    "save": _SAVE,
    "save_grad": _SAVE,
    "acl_save": _CANN,
    "AclGraphDumper": _CANN,
    "set_fx_dump_config": _CANN,
    "set_ge_dump_config": _CANN,
    "core.config_check": _ENVIRONMENT,
    "core.monitor_v2": "watch of msprobe_hooks monitors a training",
    "core.single_save": _SAVE,
    "pytorch.compile_accuracy_checker": 'record(level="compiled") compares compiled code with eager code',
}


class StandIn(MetaPathFinder, Loader):
    """Finder and loader of the modules below a package that takes the place of msprobe's."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module of the package is loaded. Raises ModuleNotFoundError for one that is not here."""
        if not fullname.startswith(f"{self._package}."):
            return None
        place = fullname.removeprefix(f"{self._package}.")
        if place in MODULES:
            return ModuleSpec(fullname, self, is_package=True)
        remedy = next((remedy for absent, remedy in ABSENT.items() if f"{place}.".startswith(f"{absent}.")), "")
        raise ModuleNotFoundError(_missing(fullname, remedy), name=fullname)

    def exec_module(self, module: ModuleType) -> None:
        """Load a module: its names are imported from this project when they are first used."""
        source = MODULES[module.__name__.removeprefix(f"{self._package}.")]

        def find(name: str) -> Any:
            if name in ABSENT:
                raise ImportError(_missing(f"{module.__name__}.{name}", ABSENT[name]), name=module.__name__)
            if not source or name.startswith("_"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(importlib.import_module(source), name)

        vars(module)["__getattr__"] = find
        if source.startswith("msprobe_hooks"):
            vars(module)["__all__"] = [*importlib.import_module(source).__all__]


def _missing(name: str, remedy: str) -> str:
    text = f"{name} is not in pytest-msprobe's stand-in for msprobe"
    return f"{text}; {remedy}" if remedy else text


def install(package: str) -> None:
    """Register the finder of the modules below ``package``, once in a process."""
    if not any(isinstance(finder, StandIn) for finder in sys.meta_path):
        sys.meta_path.insert(0, StandIn(package))


_SOURCE = f"""\
\"\"\"Programs written for msprobe use the recorder of pytest-msprobe by this package.\"\"\"
from {__name__} import install; install(__name__)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to write the package into, for PYTHONPATH")


def run(arguments: argparse.Namespace) -> int:
    """Write the package, and print how a program gets it. Raises CommandError where another file is in its place."""
    folder: Path = arguments.folder
    path = folder / "msprobe" / "__init__.py"
    try:
        if path.exists() and path.read_text(encoding="utf-8") != _SOURCE:
            raise CommandError("is another file already", file=path, remedy="choose another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_SOURCE, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot be written: {error}", file=path) from None
    print(f"{path.parent} is imported as msprobe where this folder comes first: PYTHONPATH={folder.resolve()}")  # noqa: T201
    return 0
