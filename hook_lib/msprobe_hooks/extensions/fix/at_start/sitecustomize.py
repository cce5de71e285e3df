"""Python imports this when it starts, where this folder is on PYTHONPATH: calls are seen once a framework is imported.

Until then nothing is imported that Python has not imported itself. The ``sitecustomize`` that would have been imported
without this one is imported then. Errors are written into the folder of the run, and the program goes on.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_FRAMEWORKS = ("torch", "mindspore")
_FOLDER = os.environ.get("MSPROBE_FIX_RUN", "")


class _Frameworks:
    """A finder of modules that finds none, and has something done when a framework has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _FRAMEWORKS:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_attach(module: Any) -> None:
                execute(module)
                _attach(name)

            spec.loader.exec_module = execute_and_attach  # type: ignore[method-assign]
        return spec


def _attach(framework: str) -> None:
    try:
        from msprobe_hooks.extensions.fix.fixing import attach

        attach(_FOLDER, framework)
    except Exception:
        import traceback

        _report("problem", traceback.format_exc())


def _report(name: str, text: str) -> None:
    with open(os.path.join(_FOLDER, f"{name}.{os.getpid()}"), "w") as file:  # noqa: PTH118, PTH123 - imports nothing
        file.write(text)


def _import_the_other() -> None:
    """Import the ``sitecustomize`` that is next on the path, if there is one."""
    own = sys.modules["sitecustomize"]
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - imports nothing
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]  # noqa: PTH100
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # Python looks for what it imported under this name.
        sys.modules.setdefault("sitecustomize", own)


if os.path.isdir(_FOLDER):  # noqa: PTH112
    sys.meta_path.insert(0, _Frameworks())
    _report("python", "")
_import_the_other()
