"""The tables of torch_npu's operators, in code and in ``docs/operations.md``, which ``make operators`` writes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import torch

from msprobe_hooks.extensions.npu_operators.operators import RECORDED as NPU
from msprobe_standards.policy import Policy
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.extensions import npu_operators
from pytest_msprobe.extensions.npu_operators.left_out import left_out
from tests.support.npu import operator_tables
from tests.support.npu.torch_npu_operators import Operator, read_extract

PAGE = Path(__file__).parents[3] / "docs/operations.md"
_START = "<!-- Tables of operators, written by `make operators` from the code and the schemas of torch_npu. -->\n"
_END = "<!-- End of the tables of operators. -->\n"
_POLICY = Policy.load("default")


def main() -> None:
    """Write the tables into the code and into the page."""
    operator_tables.MODULES.write_text(operator_tables.module_table(), encoding="utf-8")
    operator_tables.HOOKS.write_text(operator_tables.hook_table(), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    before, _, rest = page.partition(_START)
    _, found, after = rest.partition(_END)
    assert found, f"{PAGE} lacks the lines between which its tables are"
    return f"{before}{_START}{tables()}\n{_END}{after}"


def tables() -> str:
    """Return the operators with a golden definition, those with a required property, and those left out."""
    operators = read_extract()
    package = f"{npu_operators.__name__}."
    defined = {
        each.name.partition(".")[2]: each.definition.__module__.removeprefix(package)
        for each in operator_tables.operators()
    }
    drawn = sorted(name for name in {*operators, *NPU} if name not in defined and op_info(name).random)
    reasons = dict(left_out())
    skipped = {name for name in reasons if name in {*operators, *NPU}} | ({*operators, *NPU} - {*defined, *drawn})
    lines = ["| operator | torch_npu | golden definition | judged |", "|---|---|---|---|"]
    for name in sorted(defined):
        lines.append(
            f"| `{name}` | {_versions(operators, name)} | `{defined[name]}` | {_judged(operators.get(name), name)} |"
        )
    lines += ["", "Drawn results are judged by a property, not by a golden result:", ""]
    lines += ["| operator | torch_npu | property |", "|---|---|---|"]
    lines += [f"| `{name}` | {_versions(operators, name)} | {_property(name)} |" for name in drawn]
    lines += ["", "The others are skipped, with the reason:", "", "| left out | torch_npu | because |", "|---|---|---|"]
    lines += [f"| `{name}` | {_versions(operators, name)} | {reasons.get(name)} |" for name in sorted(skipped)]
    return "\n".join(lines) + "\n"


def _versions(operators: dict[str, Operator], name: str) -> str:
    return operators[name].versions if name in operators else "not in 2.13"


def _property(name: str) -> str:
    made = op_info(name).random
    text = inspect.getdoc(made) or ""
    return text.partition("\n")[0].removeprefix("Return the property of ").rstrip(".")


def _judged(operator: Operator | None, name: str) -> str:
    if operator is None:
        return _standard(name)
    return f"{', '.join(_results(operator.schemas[0]))}; {_standard(name)}"


def _results(schema: str) -> Iterator[str]:
    parsed = torch._C.parse_schema(schema)
    written = [argument.name for argument in parsed.arguments if argument.alias_info and argument.alias_info.is_write]
    count = sum(not (result.alias_info and result.alias_info.is_write) for result in parsed.returns)
    if count:
        yield "1 result" if count == 1 else f"{count} results"
    yield from (f"`{name}` as written" for name in written)


def _standard(name: str) -> str:
    return _POLICY.select(name, output_dtype=torch.bfloat16).name


if __name__ == "__main__":
    main()
