"""The page of public names lists what the packages' ``__all__`` do."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from pytest_msprobe.installed_extensions import extensions

ROOT = Path(__file__).parents[2]
PACKAGES = ("pytest_msprobe", "msprobe_hooks", "msprobe_hooks.dump", "msprobe_standards")


def _public(package: str) -> list[str]:
    names = list(import_module(package).__all__)
    if package == "pytest_msprobe":
        names += [name for each in extensions().values() for name in getattr(each, "EXPORTS", ())]
    return names


def _listed(package: str) -> list[str]:
    page = (ROOT / "docs" / "api" / "public.md").read_text()
    section = page.partition(f"\n## {package}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| \S", section, re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_the_public_names_of_a_package(package: str) -> None:
    assert sorted(_listed(package)) == sorted(_public(package))


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_can_be_imported(package: str) -> None:
    module = import_module(package)
    assert [name for name in _public(package) if getattr(module, name, None) is None] == []


def test_importing_the_packages_loads_neither_torch_nor_a_reader_of_dumps() -> None:
    statements = (
        f"import sys, {', '.join(PACKAGES)}; print({{'torch', 'msprobe_hooks.dump.reader'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", statements], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_page_for_programs_shows_the_program_that_is_run() -> None:
    program = (ROOT / "examples/from_a_program/checks.py").read_text().partition("\n\n")[2]
    assert f"```python\n{program}```" in (ROOT / "docs/api/pytest_msprobe.md").read_text()
