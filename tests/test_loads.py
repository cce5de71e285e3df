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
#: The packages that a start may have to pay for, or that may not be installed.
NAMES = (
    "torch", "mindspore", "torch_npu", "numpy", "msgspec", "yaml", "pytest", "xdist", "hypothesis", "junitparser",
    "safetensors", "pyarrow", "tensorboard", "PIL", "xlsxwriter", "openpyxl", "isal", "zstandard", "argcomplete",
)  # fmt: skip

# The modules of each folder are imported in a child of a process that has imported nothing of ours. A package that is
# there before, since the folder may load it, is one that the folder loads if any import statement names it.
PROGRAM = """
import builtins, importlib, json, os, sys
names, folders, first = json.loads(sys.stdin.read())
for name in first:
    importlib.import_module(name)
before = set(names) & sys.modules.keys()
import_statement = builtins.__import__

def modules_of(folder):
    loaded = set()
    def record(name, *others):
        loaded.add(name.partition(".")[0])
        return import_statement(name, *others)
    builtins.__import__ = record
    for module in folder:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            loaded.add(error.name.partition(".")[0])
    return sorted((loaded & set(first)) | (set(names) & (sys.modules.keys() - before | loaded - sys.modules.keys())))

for folder in folders:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = modules_of(folder)
        except BaseException as error:
            answer = [repr(error)]
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as result:
        print(result.read() or '["died"]')
    os.waitpid(child, 0)
"""


def folders() -> list[Path]:
    """Return the folders of the three packages that hold modules."""
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
    sentence = " ".join(text.rpartition("\n\n")[2].split())
    assert sentence.startswith(STATEMENT), f"{folder}: its docstring does not end with {STATEMENT!r}"
    words = sentence.removeprefix(STATEMENT).rstrip(".").replace(" and ", ", ")
    return set() if words == "nothing" else set(words.split(", "))


def loaded_by(folders: list[Path], first: list[str]) -> dict[Path, set[str]]:
    """Return the packages that importing the modules of each folder loads, where some are there ``first``."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([NAMES, [modules_of(folder) for folder in folders], first]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, ROOTS)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return dict(zip(folders, (set(json.loads(line)) for line in process.stdout.splitlines()), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("with_torch", [False, True], ids=["without torch", "with torch"])
def test_folders_load_what_they_state(with_torch: bool) -> None:
    statements = {folder: names for folder in folders() if ("torch" in (names := stated(folder))) is with_torch}
    loaded = loaded_by(list(statements), ["torch"] if with_torch else [])
    wrong = {
        str(folder.relative_to(REPOSITORY)): f"states {sorted(names)}, loads {sorted(loaded[folder])}"
        for folder, names in statements.items()
        if names != loaded[folder]
    }
    assert wrong == {}
