"""What the fast path needs of pytest's private parts stands in one list, and pytest has it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_msprobe.extensions import fast_path as fast
from pytest_msprobe.extensions.fast_path.switch import PLUGIN_NAMES, PRIVATE_NAMES, missing_names
from pytest_msprobe.run import item_bases

SOURCES = [*sorted(Path(fast.__file__).parent.glob("*.py")), Path(item_bases.__file__)]
MODULES = {name.partition(":")[0] for name in PRIVATE_NAMES}
NAMES = {re.split("[:.]", name)[-1] for name in PRIVATE_NAMES}
#: What the package asks for by name that is no part of pytest, or documented.
OWN = {"left_out", "id", "__slots__", "cache", "workerinput", "__code__"}


def private_names(source: str) -> Iterator[str]:
    """Yield the names of pytest's private parts in a source, as it spells them."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("_pytest"):
                yield from (f"{module}:{each.name}" for each in names)
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name.startswith("_pytest"))
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "item" | "DeferredItem")):
                pass
            case ast.Attribute(attr=name) if name in NAMES or (name.startswith("_") and not name.endswith("__")):
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="get_plugin"), args=[ast.Constant(value=str(name))]):
                yield f"plugin {name}"
            case ast.Constant(value=str(text)) if text.startswith("_pytest."):
                yield text


def is_listed(name: str) -> bool:
    return name in {*PRIVATE_NAMES, *MODULES, *NAMES, *OWN, *(f"plugin {each}" for each in PLUGIN_NAMES)}


def test_pytest_has_every_name() -> None:
    assert missing_names(PRIVATE_NAMES) == []


def test_pytest_has_every_plugin(pytestconfig: pytest.Config) -> None:
    assert [name for name in PLUGIN_NAMES if not pytestconfig.pluginmanager.has_plugin(name)] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_module_uses_no_private_name_that_is_not_in_the_list(path: Path) -> None:
    assert [name for name in private_names(path.read_text()) if not is_listed(name)] == []


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_every_name_in_the_list_is_used(name: str) -> None:
    sources = [path.read_text() for path in SOURCES if path.stem != "switch"]
    used = {each for source in sources for each in private_names(source)}
    assert used & {name, name.partition(":")[0], re.split("[:.]", name)[-1]}


@pytest.mark.parametrize(
    "source",
    [
        "from _pytest.runner import runtestprotocol",
        "import _pytest.reports",
        "report._from_json",
        'getattr(node, "_request", None)',
        'manager.get_plugin("capturemanager")',
        'modules = {"_pytest.unittest"}',
    ],
)
def test_a_name_that_is_not_in_the_list_is_found(source: str) -> None:
    assert not all(map(is_listed, private_names(source)))
