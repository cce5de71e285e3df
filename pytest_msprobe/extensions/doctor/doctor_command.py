"""``pytest-msprobe doctor``: what this machine has for a check, and what a dump needs."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from msprobe_hooks.messages import format_size
from pytest_msprobe.extensions.doctor.requirements import Fact, Section, State
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


_PROJECT = "pytest-msprobe"
# Only what changes results, or which cards and libraries are seen; a variable of another name may be a secret.
_VARIABLES = re.compile(
    r"(OMP|MKL|OPENBLAS)_NUM_THREADS|(CUDA|ASCEND_RT|NPU)_VISIBLE_DEVICES|NVIDIA_TF32_OVERRIDE|CUBLAS_WORKSPACE_CONFIG"
    r"|TORCH_DEVICE_BACKEND_AUTOLOAD|ATEN_CPU_CAPABILITY|ONEDNN_MAX_CPU_ISA|MKL_CBWR|HCCL_DETERMINISTIC|LCCL_DETERMINISTIC"
    r"|INF_NAN_MODE_ENABLE|ASCEND_(HOME_PATH|OPP_PATH|TOOLKIT_HOME|LAUNCH_BLOCKING)|PYTEST_ADDOPTS|PYTHONHASHSEED"
    r"|PYTEST_DISABLE_PLUGIN_AUTOLOAD|MS_DEV_\w+|MINDSPORE_DUMP_CONFIG"
)
_COMPILERS = ("c++", "g++", "clang++", "ninja", "nvcc", "ccec")
_CANN_VERSIONS = ("version.info", "version.cfg", "compiler/version.info", "runtime/version.info")
_CANN_VERSION = re.compile(r"[Vv]ersion\s*=\s*\[?(\S+?)\]?\s*$", re.MULTILINE)
_SECONDS = 20


def machine_facts() -> Iterator[Fact]:
    """Yield system, processor, memory and the program that runs."""
    yield Fact("system", f"{platform.platform()} on {platform.machine()}")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Fact("processors", f"{usable} usable of {os.cpu_count()}, {_model()}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Fact("memory", format_size(memory))
    yield Fact("Python", f"{platform.python_version()}, {sys.executable}")


def _model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    match = re.search(r"model name\s*:\s*(.+)", text)
    return match[1] if match else platform.processor() or "model unknown"


def package_facts() -> Iterator[Fact]:
    """Yield the package itself, what it needs, and each of its extras."""
    try:
        yield Fact(_PROJECT, version(_PROJECT))
        requirements_of_project = [Requirement(text) for text in requires(_PROJECT) or ()]
    except PackageNotFoundError:
        yield Fact(_PROJECT, "not installed as a package; pip install pytest-msprobe", "broken")
        return
    extras: dict[str, list[Requirement]] = {}
    for requirement in requirements_of_project:
        match = re.search(r'extra == [\'"]([^\'"]+)', str(requirement.marker or ""))
        extras.setdefault(match[1] if match else "", []).append(requirement)
    for requirement in extras.pop("", ()):
        yield _package(requirement, "broken")
    for extra, requirements in extras.items():
        parts = [_package(requirement, "absent") for requirement in requirements if requirement.name != _PROJECT]
        if parts:
            missing = any(part.state != "ok" for part in parts)
            text = ", ".join(f"{part.name} {part.text}" for part in parts)
            remedy = f"; pip install '{_PROJECT}[{extra}]'" if missing else ""
            yield Fact(f"[{extra}]", f"{text}{remedy}", "absent" if missing else "ok")


def _package(requirement: Requirement, otherwise: State) -> Fact:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return Fact(requirement.name, "not installed", otherwise)
    if not requirement.specifier.contains(installed, prereleases=True):
        text = f"{installed}, but {requirement.specifier} is needed"
        return Fact(requirement.name, text, otherwise)
    return Fact(requirement.name, installed)


def plugin_facts() -> Iterator[Fact]:
    """Yield the other plugins of pytest that are installed, each of which may change a run."""
    for distribution in sorted(distributions(), key=lambda candidate: str(candidate.metadata["Name"]).lower()):
        name = str(distribution.metadata["Name"])
        if name != _PROJECT and any(entry.group == "pytest11" for entry in distribution.entry_points):
            yield Fact(name, distribution.version)


def compiler_facts() -> Iterator[Fact]:
    """Yield the compilers that ``torch.compile`` and extensions take, and CANN."""
    for name in _COMPILERS:
        place = shutil.which(name)
        yield Fact(name, "not on the PATH", "absent") if place is None else _version_of(name, place)
    home = os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME")
    yield (
        Fact("CANN", "ASCEND_HOME_PATH is not set; source set_env.sh if it is installed", "absent")
        if not home
        else _cann(Path(home))
    )


def _version_of(name: str, place: str) -> Fact:
    try:
        done = subprocess.run([place, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Fact(name, f"{place} cannot be run: {error}", "broken")
    lines = (done.stdout or done.stderr).strip().splitlines()
    if done.returncode != 0 or not lines:
        return Fact(
            name,
            f"{place} --version fails with exit status {done.returncode}: {lines[-1] if lines else 'no output'}",
            "broken",
        )
    line_with_version = next((line for line in lines if re.search(r"\d\.\d", line)), lines[0])
    return Fact(name, f"{line_with_version}, {place}")


def _cann(home: Path) -> Fact:
    if not home.is_dir():
        return Fact("CANN", f"{home}: no such directory; source set_env.sh of the installed version", "broken")
    for name in _CANN_VERSIONS:
        try:
            match = _CANN_VERSION.search((home / name).read_text(errors="replace"))
        except OSError:
            continue
        if match:
            return Fact("CANN", f"{match[1]}, {home}")
    return Fact("CANN", f"{home}, version unknown")


def variable_facts(environment: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the environment variables that change results or what is seen; no others, which may be secrets."""
    for name in sorted(environment):
        if _VARIABLES.fullmatch(name):
            yield Fact(name, environment[name])
