"""``pytest-msprobe doctor``: what this machine has for a check, and what a dump needs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytest_msprobe.extensions.doctor.requirements import Fact, Section
from pytest_msprobe.reports.text import printable

_MARKS = {"ok": " ", "absent": "-", "broken": "!"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dump whose needs are reported, and devices that torch alone does not know."""
    parser.add_argument(
        "dump",
        metavar="DUMP",
        nargs="?",
        type=Path,
        help="also report what this dump.json, or the dump in this folder, needs",
    )
    parser.add_argument(
        "--device",
        metavar="TYPE",
        action="append",
        default=[],
        help="also report the cards of this device type, whose package torch_TYPE torch does not load (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, and return 1 where something is broken or lacks what the dump needs.

    Raises DumpError where the dump cannot be read.
    """
    sections = list(_sections(arguments.dump, arguments.device))
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(sections), indent=1).decode())
    else:
        for section in sections:
            print(printable("\n".join(_lines(section))))
        print("- not installed, fine if not needed; ! broken or missing")
    return 1 if any(fact.state == "broken" for section in sections for fact in section.facts) else 0


def _sections(dump: Path | None, devices: Sequence[str]) -> Iterator[Section]:
    from pytest_msprobe.extensions.doctor.machine import (
        compiler_facts,
        machine_facts,
        package_facts,
        plugin_facts,
        variable_facts,
    )
    from pytest_msprobe.extensions.doctor.requirements import probed

    needs = () if dump is None else _needs(dump)
    yield Section("machine", tuple(machine_facts()))
    yield Section("packages", tuple(package_facts()))
    yield Section("other plugins of pytest", tuple(plugin_facts()))
    yield Section("frameworks", (*probed("torch"), *probed("MindSpore")))
    probes = dict.fromkeys(("npu", "cuda", "accelerators", *devices, "cpu"))
    yield Section("devices", tuple(dict.fromkeys(fact for probe in probes for fact in probed(probe))))
    yield Section("compilers", tuple(compiler_facts()))
    yield Section("environment", tuple(variable_facts(os.environ)))
    if needs:
        yield Section("what the dump needs", needs)


def _needs(place: Path) -> tuple[Fact, ...]:
    from msprobe_hooks.dump.reader import open_dump
    from msprobe_hooks.dump.recording_paths import find_dumps
    from pytest_msprobe.engine.framework_names import PYTORCH, checked_as
    from pytest_msprobe.extensions.doctor.requirements import dump_facts, probed

    path = find_dumps(place)[0] if place.is_dir() else place
    dump = open_dump(path)
    lacking = probed("records", str(path)) if checked_as(dump) == PYTORCH else []
    return (*dump_facts(dump), *lacking)


def _lines(section: Section) -> Iterator[str]:
    yield f"{section.title}:"
    width = max((len(fact.name) for fact in section.facts), default=0)
    for fact in section.facts:
        text = fact.text.replace("\n", " ")
        yield f"{_MARKS[fact.state]} {fact.name.ljust(width)}  {text}"
    if not section.facts:
        yield "  none"
