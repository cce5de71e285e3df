"""What type checkers and completion know of the public names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from msprobe_hooks.extensions.monitor.watch.config import _OPTIONS, WatchOptions
from msprobe_hooks.recording.config import RecordOptions, Settings
from pytest_msprobe.engine.replay.trials.config import ReplayConfig, ReplayOptions
from pytest_msprobe.extensions.live_checks.options import LiveKeywords, LiveOptions

REPOSITORY = Path(__file__).parents[2]
TYPED = REPOSITORY / "tests" / "docs" / "typed"
CHECKERS = {
    "mypy": ["-m", "mypy", "--strict", "--no-pretty"],
    # Pyright, with the Node that it needs in its package.
    "pyright": ["-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable],
}
STUBS = {
    "pytest_msprobe": REPOSITORY / "pytest_msprobe" / "__init__.pyi",
    "msprobe_hooks": REPOSITORY / "hook_lib" / "msprobe_hooks" / "__init__.pyi",
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_type_checker_refuses_each_misuse_and_no_use(checker: str) -> None:
    command = [sys.executable, *CHECKERS[checker], *map(str, sorted(TYPED.glob("*.py")))]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    refused = {
        (Path(file).name, int(line))
        for file, line in re.findall(r"^\s*(\S+\.py):(\d+):(?:\d+)?.*\berror\b", done.stdout, re.MULTILINE)
    }
    meant = {
        (path.name, number)
        for path in TYPED.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# refused")
    }
    assert refused == meant, done.stdout + done.stderr


@pytest.mark.parametrize("package", STUBS)
def test_the_stub_of_a_package_has_the_names_that_it_lists(package: str) -> None:
    imports = [node for node in ast.parse(STUBS[package].read_text()).body if isinstance(node, ast.ImportFrom)]
    module = import_module(package)
    names = {alias.name for node in imports for alias in node.names}
    public = {name for name in dir(module) if not name.startswith("_")}
    assert names <= public
    assert set(module.__all__) <= names
    for node in imports:
        for alias in node.names:
            assert getattr(module, alias.name) is getattr(import_module(str(node.module)), alias.name)


@pytest.mark.parametrize(
    ("keywords", "options"),
    [
        (RecordOptions, {field.name for field in fields(Settings)} - {"dump_path", "level"}),
        (ReplayOptions, {field.name for field in fields(ReplayConfig)} - {"device", "policy"}),
        (LiveKeywords, {field.name for field in fields(LiveOptions)}),
        (WatchOptions, {*_OPTIONS}),
    ],
    ids=["record", "check_call", "live", "watch"],
)
def test_the_keywords_that_a_type_checker_knows_are_the_options_that_there_are(
    keywords: type, options: set[str]
) -> None:
    assert {*keywords.__annotations__} == options
