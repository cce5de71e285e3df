"""The size of what somebody has to know who carries the project on."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("standards/msprobe_standards", "hook_lib/msprobe_hooks", "pytest_msprobe")
MODULES = [file for package in PACKAGES for file in sorted((REPOSITORY / package).rglob("*.py"))]
CORE = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in MODULES if "extensions" not in file.parts}


def test_the_core_stays_within_its_budget_of_lines() -> None:
    assert sum(CORE.values()) <= 60_000


def test_no_module_of_the_core_is_too_long_to_survey() -> None:
    assert {str(file.relative_to(REPOSITORY)): lines for file, lines in CORE.items() if lines > 400} == {}


def test_there_are_not_more_modules_than_one_can_survey() -> None:
    assert len(MODULES) <= 805


@pytest.mark.parametrize("package", ["pytest_msprobe", "hook_lib/msprobe_hooks"])
def test_each_extension_says_what_it_is_for_and_how_to_take_it_out(package: str) -> None:
    short = {
        init.parent.name
        for init in sorted((REPOSITORY / package / "extensions").glob("*/__init__.py"))
        if "deleting" not in (text := init.read_text(encoding="utf-8")) or len(text.splitlines()) < 8
    }
    assert short == set()
