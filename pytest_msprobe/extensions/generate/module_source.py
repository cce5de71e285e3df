"""The text of one test module."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pytest_msprobe.extensions.generate.module_plan import Module
from pytest_msprobe.extensions.generate.source_format import (
    Code,
    Group,
    atoms,
    dict_of,
    docstring,
    lay_out,
    list_of,
    literal,
    string,
)

_TEST = """\
@pytest.mark.parametrize("record", {records})
def test_{direction}(precision, record):
    precision.check_recorded({function}, CALLS, record, seed=SEED)"""

_TEST_OF_SEEDS = """\
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("record", {records})
def test_{direction}(precision, record, seed):
    precision.check_recorded({function}, CALLS, record, seed=seed)"""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where modules come from: the dump's file name, the command that made them, the seeds of their inputs.

    ``options`` are those of pytest under which they are to run.
    """

    dump: str
    command: str
    seeds: tuple[int, ...]
    options: tuple[str, ...] = ()


def module_text(module: Module, provenance: Provenance) -> str:
    """Return the source of a module, formatted."""
    function = module.function
    names = {atom.lstrip("-") for code in module.calls.values() for atom in atoms(code)} & {"inf", "nan"}
    standard = [line for line in (function.imports,) if line.startswith("import ")]
    standard += [f"from math import {', '.join(sorted(names))}"] if names else []
    own = ["from pytest_msprobe import recorded", *([function.imports] if function.imports.startswith("from ") else [])]
    seeds = provenance.seeds if module.seed is None else (module.seed,)
    head = [
        docstring(_description(module, provenance)),
        *(["\n".join(standard)] if standard else []),
        "\n".join(sorted({"import pytest", function.framework, *(["import torch"] if module.inputs else [])})),
        "\n".join(own),
        _seeds(seeds),
        "# Calls by name without direction, as recorded.\n" + _assigned("CALLS", dict_of(module.calls)),
    ]
    tables, tests = [], []
    for direction, records in (("forward", module.forward), ("backward", module.backward)):
        if records:
            tables.append(_assigned(direction.upper(), list_of([string(record) for record in records])))
            template = _TEST if len(seeds) == 1 else _TEST_OF_SEEDS
            tests.append(template.format(records=direction.upper(), direction=direction, function=function.spelling))
    definitions = [function.definition] if function.definition else []
    return "\n\n\n".join(["\n\n".join([*head, *tables]), *definitions, *tests]) + "\n"


def _description(module: Module, provenance: Provenance) -> str:
    function = module.function
    count = len(module.records)
    what = function.spelling if not function.definition else f"torch.ops.npu.{function.spelling}"
    lines = [f"{what} as {provenance.dump} recorded it: {count} record{'' if count == 1 else 's'}.", ""]
    if module.inputs:
        lines = [f"{what} on {module.inputs}: {module.records[0]}.", ""]
    if any(_reads_files(code) for code in module.calls.values()):
        lines += ["Tensors with a file= are read from there; the others are drawn.", ""]
    if function.golden:
        lines += [f"Its golden definition is {function.golden}.", ""]
    lines += [
        f"Made by: {provenance.command}",
        f"Run it:  pytest {module.file} {shlex.join(provenance.options or ('--msprobe-device', 'npu'))}",
        "",
    ]
    return "\n".join(lines)


def _reads_files(code: Code) -> bool:
    return isinstance(code, Group) and any(prefix == "file=" or _reads_files(item) for prefix, item in code.items)


def _seeds(seeds: tuple[int, ...]) -> str:
    if len(seeds) == 1:
        return f"# Drawn inputs depend on seed, record and argument alone.\nSEED = {seeds[0]}"
    table = _assigned("SEEDS", literal(list(seeds)))
    return f"# Each record is tested with each seed; drawn inputs depend on seed, record and argument alone.\n{table}"


def _assigned(name: str, code: Code) -> str:
    return "\n".join(lay_out(code, f"{name} = "))
