"""docs/operations.md lists every trait, and every file that holds a table of operations."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_msprobe.engine.replay.ops.traits import OpInfo
from tests.support.npu import operators_page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
PACKAGES = ("standards/msprobe_standards", "hook_lib/msprobe_hooks", "pytest_msprobe")

# Operations by name, and statistics, types and arguments as well.
AMBIGUOUS = frozenset("bool complex diff float int max mean min norm shape size std var".split())
NAMES = {
    name
    for home in (torch._C._VariableFunctions, torch.Tensor, torch.nn.functional, torch.distributed)
    for name in dir(home)
    if callable(found := getattr(home, name)) and not isinstance(found, type) and "torch_function" not in name
} - AMBIGUOUS


@pytest.mark.parametrize("trait", [field.name for field in dataclasses.fields(OpInfo)])
def test_each_trait_is_on_the_page(trait: str) -> None:
    assert f"\n| `{trait}` |" in PAGE


def test_each_file_that_holds_a_table_of_operations_is_on_the_page() -> None:
    holders = [module for module in modules() if any(map(names_operations, constants(module)))]
    assert len(holders) > 5
    assert [str(module) for module in holders if str(module) not in PAGE] == []


@pytest.mark.parametrize("path", re.findall(r"`((?:pytest_msprobe|standards|hook_lib)/[\w/.-]+)`", PAGE))
def test_each_file_on_the_page_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_tables_of_operators_are_those_of_the_code_and_the_schemas() -> None:
    assert operators_page.with_tables(PAGE) == PAGE, "run `make operators`"


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path.relative_to(ROOT) for path in sorted((ROOT / package).rglob("*.py")))


def constants(module: Path) -> Iterator[set[str]]:
    """Yield, for each value that a module assigns, the words of the texts in it."""
    for node in ast.parse((ROOT / module).read_text()).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            texts = (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            yield {word for text in texts if isinstance(text, str) for word in text.split()}


def names_operations(words: set[str]) -> bool:
    operations = [word for word in words if word.rpartition(".")[2] in NAMES]
    return len(operations) >= 3 and 2 * len(operations) >= len(words)
