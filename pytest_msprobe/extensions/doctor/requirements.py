"""What a dump needs to be checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.opening import open_dump
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.tensor_files.containers import file_of
from msprobe_hooks.messages import listed
from pytest_msprobe.engine.framework_names import checked_as, missing_piece
from pytest_msprobe.extensions.doctor.findings import Fact

_DTYPE = re.compile(rb'"dtype":\s*"([^"\\]+)"')
_FILE = re.compile(rb'"data_name":\s*"([^"\\]+)"')
_LISTED = 5


def dump_facts(dump: Dump) -> Iterator[Fact]:
    """Yield what a dump is, what it asks for, and what of that is missing; nothing large is imported."""
    yield Fact("dump", f"{dump.path}: {dump.framework}, level {dump.level}, task {dump.task}")
    yield Fact("records", f"{len(dump.api_names)} of calls, {dump.module_count} of modules")
    problem = missing_piece(checked_as(dump))
    if problem is not None:
        yield Fact("framework", problem, "broken")
    kinds = Counter(name.partition(".")[0] for name in dump.api_names)
    if kinds["Distributed"]:
        yield Fact(
            "communication", f"{kinds['Distributed']} records: skipped by a check; use --msprobe-communication for them"
        )
    if kinds["NPU"]:
        yield Fact("torch_npu", f"{kinds['NPU']} records of its operators, judged by built-in golden definitions")
    dtypes = sorted({found[1].decode() for raw in dump.records.values() for found in _DTYPE.finditer(bytes(raw))})
    yield Fact("dtypes", ", ".join(dtype.removeprefix("torch.") for dtype in dtypes) or "none")
    yield from _file_facts(dump)


def _file_facts(dump: Dump) -> Iterator[Fact]:
    recorded = {found[1] for raw in dump.records.values() for found in _FILE.finditer(bytes(raw))}
    names = {file_of(name.decode(errors="replace")) for name in recorded}
    names.discard("-1")
    if not names:
        yield Fact("tensors", "none recorded; inputs are drawn from statistics")
        return
    try:
        there = {file.relative_to(dump.tensor_folder).as_posix() for file in dump.tensor_folder.rglob("*")}
    except OSError:
        there = set()
    missing = sorted(names - there)
    if missing:
        text = f"{len(missing)} of {len(names)} files are missing in {dump.tensor_folder}, first {missing[0]}"
        yield Fact("tensors", text, "broken")
    else:
        yield Fact("tensors", f"{len(names)} files, all there")


def lacking_facts(path: Path) -> Iterator[Fact]:
    """Yield the dtypes and operations of a dump of PyTorch that this installation lacks; imports torch."""
    from pytest_msprobe.engine.import_torch import import_torch

    torch = import_torch()
    from pytest_msprobe.engine.replay.ops.lookup import resolve
    from pytest_msprobe.engine.replay.references import ReferenceRegistry
    from pytest_msprobe.engine.values.dtypes import dtype_named
    from pytest_msprobe.results.skip_reasons import Skip

    dump, references = open_dump(path), ReferenceRegistry()
    unknown: dict[str, dict[str, None]] = {}
    for name in dump.api_names:
        try:
            api = parse_api_name(name)
            resolve(api, references)
        except Skip as skip:
            unknown.setdefault(skip.reason.value, {})[api.qualified_api] = None
        except ValueError:
            continue
    for reason, apis in unknown.items():
        yield Fact("skipped", f"{reason}: {listed([*apis], _LISTED)}", "absent")
    dtypes = {found[1].decode() for raw in dump.records.values() for found in _DTYPE.finditer(bytes(raw))}
    for dtype in sorted(dtypes):
        try:
            dtype_named(dtype)
        except Skip:
            yield Fact("dtype", f"{dtype}: unknown to torch {torch.__version__}", "broken")
