"""What is known of torch_npu holds for the package that is installed: operators, and the attributes that are read."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.npu.process import PACKAGE, require_cards, run_script
from tests.support.npu.torch_npu_operators import read_extract, read_package

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for package in ("standards", "hook_lib", "pytest_msprobe") for path in sorted((ROOT / package).rglob("*.py"))
]
# What other names stand for in the modules of devices.
ROOTS = {"torch.npu": "torch.npu", "torch_npu": "torch_npu", "runtime": "torch.npu", "self.runtime()": "torch.npu"}
# What the class of any accelerator builds the names of, and what is asked for by its name.
SWITCHES = {"torch.npu.matmul.allow_hf32", "torch.npu.conv.allow_hf32", "torch.npu.is_jit_compile_false"}
RESOLVE = """
import json, sys
import torch, torch_npu

missing = []
for path in json.loads(sys.argv[1]):
    found = {"torch": torch, "torch_npu": torch_npu}[path.partition(".")[0]]
    try:
        for name in path.split(".")[1:]:
            found = getattr(found, name)
    except AttributeError:
        missing.append(path)
print(json.dumps(missing))
"""


def test_the_operators_of_the_extract_are_those_of_the_package() -> None:
    require_cards()
    extract = {name: replace(each, earlier=[], versions="") for name, each in read_extract().items()}
    assert read_package(PACKAGE) == extract


def test_each_attribute_of_torch_npu_that_the_code_reads_is_there() -> None:
    require_cards()
    named = sorted({*SWITCHES, *(path for source in SOURCES for path in attributes(source))})
    assert len(named) > 10
    assert json.loads(run_script(RESOLVE, json.dumps(named)).splitlines()[-1]) == []


def attributes(source: Path) -> Iterator[str]:
    """Yield the paths of attributes of torch_npu, and of ``torch.npu``, that a module names."""
    of_devices = source.parent.name == "devices" and source.stem in {"npu", "accelerator"}
    roots = ROOTS if of_devices else {name: path for name, path in ROOTS.items() if "npu" in name}
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Attribute):
            root, _, name = ast.unparse(node).rpartition(".")
            matched = next((each for each in roots if root == each or root.startswith(f"{each}.")), None)
            if matched is not None and "(" not in root.removeprefix(matched):
                yield f"{roots[matched]}{root.removeprefix(matched)}.{name}"
        elif of_devices and isinstance(node, ast.Call) and ast.unparse(node.func) == "self._function":
            yield f"torch.npu.{ast.literal_eval(node.args[0])}"
