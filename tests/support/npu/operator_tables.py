"""Tables made of the declarations of torch_npu's operators, for what may not load torch or the plugin."""

from __future__ import annotations

import dataclasses
import pkgutil
import textwrap
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from pytest_msprobe.engine.replay.ops.operators import Operator, declarations
from pytest_msprobe.extensions import npu_operators
from pytest_msprobe.extensions.npu_operators.left_out import NOT_RECORDED, left_out

_ROOT = Path(__file__).parents[3]
_PACKAGE = npu_operators.__name__
#: APIs that are recorded and need no definition: their results are not defined.
_UNDEFINED = ("empty_with_format",)
MODULES = _ROOT / "pytest_msprobe/extensions/npu_operators/operator_table.py"
HOOKS = _ROOT / "hook_lib/msprobe_hooks/extensions/npu_operators/operators.py"


def operators() -> list[Operator]:
    """Return all operators that the extension declares, sorted by name."""
    for module in pkgutil.walk_packages(npu_operators.__path__, f"{_PACKAGE}."):
        import_module(module.name)
    own = (each for each in declarations() if each.definition.__module__.startswith(f"{_PACKAGE}."))
    return sorted(own, key=lambda each: each.name)


def module_table() -> str:
    """Return the table of the modules that have the definitions."""
    modules: dict[str, list[str]] = {}
    for each in operators():
        modules.setdefault(each.definition.__module__.removeprefix(f"{_PACKAGE}."), []).append(each.name)
    rows = [f'    "{module}": (\n{_words(names)}\n    ),' for module, names in sorted(modules.items())]
    return "\n".join(
        (
            '"""Modules that define operators; written by `python -m tests.support.npu.operators_page`."""',
            "",
            "from __future__ import annotations",
            "",
            "#: Module below this package -> the APIs that it defines, as a dump names them.",
            "DEFINED: dict[str, tuple[str, ...]] = {",
            *rows,
            "}  # fmt: skip",
            "",
        )
    )


def hook_table() -> str:
    """Return what recordings and comparisons know of the operators."""
    recorded = {
        each.name.removeprefix("NPU.") for each in operators() if each.recorded and each.name.startswith("NPU.")
    }
    recorded |= {name for name, _ in left_out() if name not in NOT_RECORDED} | {*_UNDEFINED}
    effects: dict[str, list[str]] = {}
    for each in operators():
        effects.setdefault(_expression(each.effects), []).append(each.name.rpartition(".")[2])
    effects.pop("Effects()")
    names = textwrap.fill(" ".join(sorted(recorded)), 116, initial_indent=4 * " ", subsequent_indent=4 * " ")
    rows = [f'    (\n        "{" ".join(names)}",\n        {effect},\n    ),' for effect, names in effects.items()]
    return "\n".join(
        (
            '"""Operators of torch_npu; written by `python -m tests.support.npu.operators_page`."""',
            "",
            "# fmt: off",
            "from __future__ import annotations",
            "",
            "from msprobe_hooks.dump.effects import Effects, ValidRows",
            "",
            "#: The APIs that are recorded.",
            "RECORDED = frozenset(",
            '    """',
            names,
            '    """.split()',
            ")",
            "",
            "#: Names of operators, and what they do to memory.",
            "EFFECTS: tuple[tuple[str, Effects], ...] = (",
            *rows,
            ")",
            "",
        )
    )


def _words(names: Iterable[str]) -> str:
    text = " ".join(f'"{name}",' for name in names)
    return textwrap.fill(text, 116, initial_indent=8 * " ", subsequent_indent=8 * " ", break_on_hyphens=False)


def _expression(value: object) -> str:
    """Return the source of a value: of a dataclass with the fields that are not the default."""
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(map(_expression, sorted(value)))}}})" if value else "frozenset()"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return f'"{value}"' if isinstance(value, str) else repr(value)
    own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    defaults = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(value)
    }
    given = [f"{name}={_expression(each)}" for name, each in own.items() if each != defaults[name]]
    return f"{type(value).__name__}({', '.join(given)})"
