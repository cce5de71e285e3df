"""Packages that importing our modules may load, as the last line of each folder's docstring states."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOTS = (REPOSITORY / "standards", REPOSITORY / "hook_lib", REPOSITORY)
PACKAGES = ("msprobe_standards", "msprobe_hooks", "pytest_msprobe")
STATEMENT = "Importing its modules loads "
#: The packages that a start may pay for, or that may not be there.
NAMES = (
    "torch", "mindspore", "torch_npu", "numpy", "msgspec", "yaml", "pytest", "xdist", "hypothesis", "junitparser",
    "safetensors", "pyarrow", "tensorboard", "PIL", "xlsxwriter", "openpyxl", "matplotlib", "isal", "zstandard",
    "argcomplete",
)  # fmt: skip

# Each module is imported in a process of its own that has loaded nothing of ours, and torch where its folder may.
PROGRAM = """
import importlib, json, os, sys
names, modules, first = json.loads(sys.argv[1])
for name in first:
    importlib.import_module(name)
before = set(names) & sys.modules.keys()
loaded = {}
for module in modules:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(module)
            new = sorted(set(names) & sys.modules.keys() - before)
        except ModuleNotFoundError as error:
            new = sorted({*(set(names) & sys.modules.keys() - before), error.name.partition(".")[0]})
        except BaseException as error:
            new = [repr(error)]
        os.write(write, json.dumps(new).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as result:
        loaded[module] = json.loads(result.read() or '["died"]')
    os.waitpid(child, 0)
print(json.dumps(loaded))
"""


def folders() -> list[Path]:
    """Return the folders of the packages that hold modules."""
    return [
        init.parent
        for root, package in zip(ROOTS, PACKAGES, strict=True)
        for init in sorted((root / package).rglob("__init__.py"))
    ]


def modules_of(folder: Path) -> list[str]:
    """Return the names of a folder's own modules, its package first."""
    root = next(root for root in ROOTS if folder.is_relative_to(root))
    package = ".".join(folder.relative_to(root).parts)
    names = [file.stem for file in sorted(folder.glob("*.py")) if file.stem not in ("__init__", "__main__")]
    return [package, *(f"{package}.{name}" for name in names)]


def stated(folder: Path) -> set[str]:
    """Return the packages that a folder's docstring names."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    last = text.splitlines()[-1] if text else ""
    assert last.startswith(STATEMENT), f"{folder}: its docstring does not end with {STATEMENT!r}"
    words = last.removeprefix(STATEMENT).rstrip(".").replace(" and ", ", ")
    return set() if words == "nothing" else set(words.split(", "))


def loaded_by(modules: list[str], first: list[str]) -> dict[str, list[str]]:
    """Return the packages that importing each module loads, besides those that are there ``first``."""
    path = os.pathsep.join(map(str, ROOTS))
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([NAMES, modules, first])],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    loaded: dict[str, list[str]] = json.loads(process.stdout)
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("with_torch", [False, True], ids=["without torch", "with torch"])
def test_folders_load_what_they_state(with_torch: bool) -> None:
    allowed = {folder: stated(folder) for folder in folders()}
    chosen = [folder for folder, names in allowed.items() if ("torch" in names) is with_torch]
    # What torch loads itself comes with it.
    first = ["torch"] if with_torch else []
    loaded = loaded_by([module for folder in chosen for module in modules_of(folder)], first)
    wrong = {
        str(folder.relative_to(REPOSITORY)): (names, stated_names)
        for folder in chosen
        if (names := {name for module in modules_of(folder) for name in loaded[module]})
        != (stated_names := allowed[folder] - set(first))
    }
    assert wrong == {}
