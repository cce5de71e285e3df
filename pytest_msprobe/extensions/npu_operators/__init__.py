"""Golden definitions of torch_npu's operators, and what is known of each.

Without it, records of ``NPU.*``, ``Aten.npu_*`` and ATB operators are skipped: "no golden definition".
It adds no option and writes no file. Take it out by deleting this folder and tests/extensions/npu_operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.references import ReferenceRegistry


def pytest_msprobe_register_references(registry: ReferenceRegistry) -> None:
    """Add the golden definitions, each of which is imported when it is first asked for."""
    from pytest_msprobe.extensions.npu_operators.operator_table import DEFINED

    for module, types in DEFINED.items():
        for type_, operators in types.items():
            for operator in operators:
                registry.add_module(f"{type_}.{operator}", f"{__name__}.{module}")
