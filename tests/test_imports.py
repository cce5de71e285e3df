"""What the contracts of ``lint-imports`` cannot say."""

from __future__ import annotations

import re
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).parents[1]


def test_no_two_modules_import_each_other_even_for_types() -> None:
    graph = grimp.build_graph("pytest_msprobe", "msprobe_hooks", "msprobe_standards", cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    assert sorted(left) == []


def test_json_and_yaml_are_read_by_one_module_each() -> None:
    reading = re.compile(r"\bjson\.(loads?|decode|Decoder)\b|\byaml\.(\w*load\w*|compose\w*|parse|\w*Loader)\b")
    folders = (
        REPOSITORY / name for name in ("standards/msprobe_standards", "hook_lib/msprobe_hooks", "pytest_msprobe")
    )
    files = (file for folder in folders for file in folder.rglob("*.py"))
    found = {str(file.relative_to(REPOSITORY)) for file in files if reading.search(file.read_text())}
    # A start of pytest reads files of this package, and loads nothing of the hook library for it.
    found.remove("pytest_msprobe/run/option_data.py")
    assert found == {"hook_lib/msprobe_hooks/json_decoding.py", "standards/msprobe_standards/decoding.py"}
