"""Golden definitions of torch_npu's operators, and samples of them. Needs the extension operators.

Records of ``NPU.*``, ``Aten.npu_*`` and ATB operators are judged by them; without this extension they are skipped:
"no golden definition". It adds no command, no option and writes no file.

A definition is a function in the module of its subject, under ``@golden("NPU.npu_mine", ...)``; `left_out` has the
operators without one, by the reason. Two tables are made of the declarations, so that nothing loads torch to read a
name, by ``python -m tests.support.npu.operators_page``: `operator_table` here, and
``msprobe_hooks/extensions/npu_operators/operators.py``, from which recordings and comparisons know the operators.

``samples.json`` has inputs of the operators by dtype, shape and range, written by ``python -m
tests.support.npu.operator_samples``; sweeps over operators find them by an entry point.

Take it out by deleting this folder, msprobe_hooks/extensions/npu_operators, tests/extensions/npu_operators and the
entry point of ``pytest_msprobe.operators`` in pyproject.toml.

Importing its modules loads msgspec, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.references import ReferenceRegistry


def pytest_msprobe_register_references(registry: ReferenceRegistry) -> None:
    """Add the golden definitions, each of which is imported when it is first asked for."""
    from pytest_msprobe.extensions.npu_operators.left_out import left_out
    from pytest_msprobe.extensions.npu_operators.operator_table import DEFINED

    for module, names in DEFINED.items():
        for name in names:
            registry.add_module(name, f"{__name__}.{module}")
    for operator, reason in left_out():
        registry.leave_out(f"NPU.{operator}", reason)
