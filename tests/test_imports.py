"""What the contracts of ``lint-imports`` cannot say."""

from __future__ import annotations

import grimp


def test_no_two_modules_import_each_other_even_for_types() -> None:
    graph = grimp.build_graph("pytest_msprobe", "msprobe_hooks", "msprobe_standards", cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    assert sorted(left) == []
