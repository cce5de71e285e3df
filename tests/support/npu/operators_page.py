"""The tables of torch_npu's operators, in code and in ``docs/operations.md``, which ``make operators`` writes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
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
_ALL_WHEELS = "2.1-2.13"
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
    judged = {name: (f"`{defined[name]}`", _standard(name)) for name in sorted(defined)}
    lines = ["| golden definition | standard | operators |", "|---|---|---|"]
    lines += _rows(operators, judged)
    lines += ["", "Drawn results are judged by a property, not by a golden result:", ""]
    lines += ["| property | operators |", "|---|---|", *_rows(operators, {name: (_property(name),) for name in drawn})]
    lines += ["", "The others are skipped, with the reason:", "", "| because | operators |", "|---|---|"]
    lines += _rows(operators, {name: (str(reasons.get(name)),) for name in sorted(skipped)})
    return "\n".join(lines) + "\n"


def _rows(operators: dict[str, Operator], cells: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield a row for each distinct beginning, sorted, with the operators that share it."""
    for begin in sorted(set(cells.values())):
        names = ", ".join(_with_facts(operators, name) for name in cells if cells[name] == begin)
        yield f"| {' | '.join(begin)} | {names} |"


def _with_facts(operators: dict[str, Operator], name: str) -> str:
    """Return an operator with the wheels that have it, where one lacks it, and the arguments that it writes."""
    if name not in operators:
        return f"`{name}` (not in 2.13)"
    versions = [] if operators[name].versions == _ALL_WHEELS else [operators[name].versions]
    facts = [*versions, *_written(operators[name].schemas[0])]
    return f"`{name}` ({'; '.join(facts)})" if facts else f"`{name}`"


def _property(name: str) -> str:
    made = op_info(name).random
    text = inspect.getdoc(made) or ""
    return text.partition("\n")[0].removeprefix("Return the property of ").rstrip(".")


def _written(schema: str) -> Iterator[str]:
    arguments = torch._C.parse_schema(schema).arguments
    names = [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]
    if names:
        yield "writes " + " and ".join(f"`{name}`" for name in names)


def _standard(name: str) -> str:
    return _POLICY.select(name, output_dtype=torch.bfloat16).name


if __name__ == "__main__":
    main()
