"""Contracts of the core and its extensions: each extension can be taken out."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGES = {"pytest_msprobe": REPOSITORY / "pytest_msprobe", "msprobe_hooks": REPOSITORY / "hook_lib/msprobe_hooks"}
EXTENSIONS = sorted(
    {init.parent.name for package in PACKAGES.values() for init in (package / "extensions").glob("*/__init__.py")}
)
#: Tests of the core.
CORE = (
    "tests/commands", "tests/containment", "tests/devices", "tests/engine", "tests/fixtures", "tests/hooks",
    "tests/journal", "tests/modes", "tests/python_api", "tests/reports", "tests/results", "tests/run",
    "tests/standards", "tests/storage",
)  # fmt: skip
#: What tests share, and tests of an extension or of the whole tree.
OTHERS = (
    "tests/benchmarks", "tests/corpus", "tests/data", "tests/docs", "tests/examples", "tests/extensions",
    "tests/frameworks", "tests/mindspore", "tests/npu", "tests/robustness", "tests/support",
)  # fmt: skip

#: Takes extensions out of a copy, and returns the copy.
TakeOut = Callable[[set[str]], Path]


@cache
def arrows() -> frozenset[tuple[str, str]]:
    """Return each import of one of our modules by another."""
    graph = grimp.build_graph("pytest_msprobe", "msprobe_hooks", "msprobe_standards", cache_dir=None)
    return frozenset(
        (module, imported)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if extension_of(imported) is not None
    )


def extension_of(module: str) -> str | None:
    """Return the extension that a module belongs to, None for one of the core."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["extensions"] and len(parts) > 2 else None


def needs(extension: str) -> set[str]:
    """Return the other extensions that one says it needs."""
    named: set[str] = set()
    for package in PACKAGES.values():
        init = package / "extensions" / extension / "__init__.py"
        if init.is_file():
            text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            named |= set(re.findall(r"Needs the extension (\w+)\.", text.partition("\n\n")[0].replace("\n", " ")))
    return named


def test_the_core_imports_no_extension() -> None:
    assert sorted(arrow for arrow in arrows() if extension_of(arrow[0]) is None) == []


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_an_extension_imports_at_most_one_other_and_says_which(extension: str) -> None:
    others = {imported for module, imported in arrows() if extension_of(module) == extension != extension_of(imported)}
    needed = needs(extension)
    assert len(needed) <= 1
    assert {extension_of(imported) for imported in others} <= needed, sorted(others)


def test_each_folder_of_tests_is_the_cores_or_not() -> None:
    folders = {f"tests/{path.name}" for path in (REPOSITORY / "tests").glob("[a-z]*") if path.is_dir()}
    assert folders == {*CORE, *OTHERS}


@pytest.mark.parametrize("folder", CORE)
def test_tests_of_the_core_import_no_extension(folder: str) -> None:
    imports = re.compile(r"^\s*(?:from|import) \w+\.extensions\.", re.MULTILINE)
    assert [str(path) for path in (REPOSITORY / folder).rglob("*.py") if imports.search(path.read_text())] == []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what a run of the core's tests needs."""
    folder = tmp_path_factory.mktemp("core") / "checkout"
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("pytest_msprobe", "hook_lib", "standards", "examples", "tests", "docs"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


def dependents(extension: str) -> Iterator[str]:
    """Yield an extension and those that need it, which are taken out with it."""
    yield extension
    for other in EXTENSIONS:
        if extension in needs(other):
            yield from dependents(other)


@pytest.fixture
def without(checkout: Path, tmp_path: Path) -> Iterator[TakeOut]:
    """Take extensions out of the copy for the time of a test."""
    moved: list[tuple[Path, Path]] = []

    def take_out(names: set[str]) -> Path:
        for number, name in enumerate(sorted(names)):
            for package in ("pytest_msprobe", "hook_lib/msprobe_hooks", "tests"):
                folder = checkout / package / "extensions" / name
                if folder.is_dir():
                    away = tmp_path / f"{number}-{package.replace('/', '-')}"
                    folder.rename(away)
                    moved.append((away, folder))
        return checkout

    yield take_out
    for away, folder in moved:
        away.rename(folder)


def run(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the copy, on the copy's modules."""
    path = os.pathsep.join(str(checkout / name) for name in ("standards", "hook_lib", "."))
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    variables = {name: text for name, text in variables.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)


DEMO = ("-c", "examples/pytest.ini", "--msprobe-dump", "examples/check_a_dump/dump.json")
COMPARED = (
    "-c", "examples/pytest.ini", "--msprobe-compare", "examples/compare_runs/target",
    "--msprobe-golden", "examples/compare_runs/golden", "--tb=no", "-rN",
)  # fmt: skip


def assert_that_the_demo_comes_to_the_same(checkout: Path) -> None:
    checked = run(checkout, *DEMO)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    compared = run(checkout, *COMPARED)
    assert compared.returncode == 1, compared.stdout + compared.stderr


@pytest.mark.slow
def test_without_any_extension_the_demo_comes_to_the_same(without: TakeOut) -> None:
    assert_that_the_demo_comes_to_the_same(without({*EXTENSIONS}))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_without_an_extension_the_demo_comes_to_the_same(extension: str, without: TakeOut) -> None:
    assert_that_the_demo_comes_to_the_same(without({*dependents(extension)}))


def assert_that_the_core_passes(checkout: Path) -> None:
    tests = run(checkout, "-n", "2", "-m", "not slow and not nightly", "--tb=short", *CORE)
    assert tests.returncode == 0, tests.stdout + tests.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_the_core_passes_without_any_extension(without: TakeOut) -> None:
    assert_that_the_core_passes(without({*EXTENSIONS}))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_the_core_passes_without_an_extension(extension: str, without: TakeOut) -> None:
    assert_that_the_core_passes(without({*dependents(extension)}))
