"""What wheels of torch_npu say of their operators: schemas, the exposed and the documented ones, and versions.

``python -m tests.support.npu.torch_npu_operators WHEEL...`` writes the extract of the newest one that tests compare the
golden definitions with; the other wheels show since when an operator is there.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

EXTRACT = Path(__file__).parents[2] / "data/torch_npu/operators.yaml"
_SCHEMAS = "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml"
_DOCUMENTATION = "torch_npu/_op_plugin_docs.py"
_SECTIONS = ("custom", "supported", "quant", "symint")
# Operators of other names that a dump records as the NPU's own, and that have golden definitions.
_MORE = frozenset({"fast_gelu", "matmul_backward", "one_", "scatter_update", "scatter_update_"})


@dataclass(frozen=True)
class Operator:
    """An operator's schemas, one for each overload, and whether ``torch_npu`` exposes and documents it.

    ``versions`` are those of the wheels that have it, as ranges: ``2.1, 2.6-2.13``; ``earlier`` are the schemas of
    older wheels, which a record of theirs follows.
    """

    schemas: list[str]
    earlier: list[str] = field(default_factory=list)
    exposed: bool = False
    documented: bool = False
    versions: str = ""


def read_extract() -> dict[str, Operator]:
    """Return the operators of the extract by name."""
    return {name: Operator(**fields) for name, fields in _load(EXTRACT.read_text(encoding="utf-8")).items()}


def read_package(folder: Path) -> dict[str, Operator]:
    """Return the operators of the package that is installed below ``folder``, without versions."""
    return _operators((folder / _SCHEMAS).read_text(), (folder / _DOCUMENTATION).read_text())


def main(wheels: Iterable[str]) -> None:
    """Write the extract of the last of these wheels, oldest first."""
    read = {_version(wheel): _read_wheel(Path(wheel)) for wheel in wheels}
    newest = list(read.values())[-1]
    extract = {name: _with_history(name, operator, read) for name, operator in sorted(newest.items())}
    EXTRACT.parent.mkdir(exist_ok=True)
    EXTRACT.write_text(yaml.safe_dump(extract, width=1_000_000, sort_keys=False), encoding="utf-8")


def _with_history(name: str, operator: Operator, read: Mapping[str, Mapping[str, Operator]]) -> dict[str, Any]:
    older = {schema for operators in read.values() if name in operators for schema in operators[name].schemas}
    complete = replace(
        operator,
        earlier=sorted(older.difference(operator.schemas)),
        versions=_ranges([name in operators for operators in read.values()], list(read)),
    )
    return {field: value for field, value in asdict(complete).items() if value}


def _read_wheel(wheel: Path) -> dict[str, Operator]:
    with zipfile.ZipFile(wheel) as archive:
        return _operators(archive.read(_SCHEMAS).decode(), archive.read(_DOCUMENTATION).decode())


def _operators(schemas: str, documentation: str) -> dict[str, Operator]:
    documented = set(re.findall(r'_add_torch_npu_docstr\(\s*"(\w+)"', documentation))
    found: dict[str, list[tuple[str, bool]]] = {}
    for schema, exposed in _functions(_load(schemas)):
        found.setdefault(name_of(schema), []).append((schema, exposed))
    return {
        name: Operator(
            [schema for schema, _ in overloads],
            exposed=any(shown for _, shown in overloads),
            documented=name in documented,
        )
        for name, overloads in found.items()
        if name.startswith(("npu_", "_npu_")) or name in _MORE
    }


def _functions(native: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for section in _SECTIONS:
        for entry in native.get(section) or ():
            if isinstance(entry, dict) and "func" in entry:
                yield " ".join(entry["func"].split()), bool(entry.get("exposed"))


def name_of(schema: str) -> str:
    """Return the name of a schema's operator without its overload."""
    return schema.partition("(")[0].partition(".")[0]


def _version(wheel: str) -> str:
    found = re.search(r"torch_npu-(\d+\.\d+)", wheel)
    assert found, f"{wheel} is no wheel of torch_npu"
    return found[1]


def _ranges(present: list[bool], versions: list[str]) -> str:
    ranges: list[list[str]] = []
    for here, before, version in zip(present, [False, *present], versions, strict=False):
        if here and before:
            ranges[-1].append(version)
        elif here:
            ranges.append([version])
    return ", ".join(each[0] if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in ranges)


def _load(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


if __name__ == "__main__":
    main(sys.argv[1:])
