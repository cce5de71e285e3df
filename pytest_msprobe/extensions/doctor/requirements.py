"""Requirements of a dump, and facts about the machine, probed in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from msprobe_hooks.dump.containers import file_of
from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.reader import Dump, open_dump
from msprobe_hooks.json_decoding import decode_json
from msprobe_hooks.messages import listed
from pytest_msprobe.engine.framework_names import checked_as
from pytest_msprobe.engine.frameworks import missing_piece

#: ``absent`` is what need not be there; ``broken`` is there and cannot be used, or is asked for and missing.
State = Literal["ok", "absent", "broken"]


class Fact(msgspec.Struct, frozen=True):
    """One line: what it is of, what was found, and whether that is right."""

    name: str
    text: str
    state: State = "ok"


class Section(msgspec.Struct, frozen=True):
    """Facts of one kind under their title."""

    title: str
    facts: tuple[Fact, ...]


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
    dtypes = sorted({match[1].decode() for raw in dump.records.values() for match in _DTYPE.finditer(bytes(raw))})
    yield Fact("dtypes", ", ".join(dtype.removeprefix("torch.") for dtype in dtypes) or "none")
    yield from _file_facts(dump)


def _file_facts(dump: Dump) -> Iterator[Fact]:
    recorded = {match[1] for raw in dump.records.values() for match in _FILE.finditer(bytes(raw))}
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
    from pytest_msprobe.results.outcomes import Skip

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
    dtypes = {match[1].decode() for raw in dump.records.values() for match in _DTYPE.finditer(bytes(raw))}
    for dtype in sorted(dtypes):
        try:
            dtype_named(dtype)
        except Skip:
            yield Fact("dtype", f"{dtype}: unknown to torch {torch.__version__}", "broken")


# A choice: importing torch and starting a card may take a minute or more.
_SECONDS = 180
_MOST_CARDS = 16
# The package of a probe and the files of its cards. Any torch has the module for CUDA.
_TRACES = {"npu": ("torch_npu", "davinci[0-9]*"), "cuda": ("torch", "nvidia[0-9]*"), "MindSpore": ("mindspore", "")}
# What is printed by libraries goes before it.
_MARK = "msprobe-doctor:"


def probed(name: str, *arguments: str, seconds: float = _SECONDS) -> list[Fact]:
    """Run a probe in a process of its own and return its facts; whatever becomes of the process is one of them."""
    command = [sys.executable, "-m", __name__, name, *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return [Fact(name, f"did not answer within {seconds:g} s", "broken")]
    except OSError as error:
        return [Fact(name, f"no process could be started: {error.strerror}", "broken")]
    answer_line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith(_MARK)), None)
    if answer_line is not None:
        return decode_json(answer_line.removeprefix(_MARK).encode(), list[Fact])
    last = next(iter(done.stderr.strip().splitlines()[-1:]), "no output")
    return [Fact(name, f"ended {_how(done.returncode)}: {last}", "broken")]


def _how(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def torch_facts() -> Iterator[Fact]:
    """Yield the version of torch, what it was built for and how it computes."""
    from pytest_msprobe.engine.import_torch import import_torch

    torch = import_torch()
    built = torch.version.cuda or torch.version.hip
    yield Fact("torch", f"{torch.__version__}{f', built for {built}' if built else ', built for the CPU'}")
    capability = torch.backends.cpu.get_cpu_capability()
    yield Fact("torch on the CPU", f"{capability}, {torch.get_num_threads()} threads")


def mindspore_facts() -> Iterator[Fact]:
    """Yield the version of MindSpore."""
    import mindspore

    yield Fact("MindSpore", mindspore.__version__)


def device_facts(name: str) -> Iterator[Fact]:
    """Yield each card of a kind, its switches, and whether it computes."""
    from pytest_msprobe.devices.card import compute_something
    from pytest_msprobe.devices.registry import DeviceRegistry
    from pytest_msprobe.engine.frameworks import framework_named

    device = DeviceRegistry().get(name)
    count = device.count()
    if not count:
        yield Fact(name, "no card is visible", "absent")
    for index in range(min(count, _MOST_CARDS)):
        card = f"{name}:{index}" if name != "cpu" else name
        try:
            device.activate(index)
            described = device.describe()
            compute_something(device)
        except Exception as error:
            # A card or its driver may raise anything.
            yield Fact(card, f"does not compute: {_cause(error)}", "broken")
            continue
        yield Fact(card, described)
    if count > _MOST_CARDS:
        yield Fact(name, f"and {count - _MOST_CARDS} more")
    if count:
        for mode, state in framework_named("pytorch").math_modes(device).items():
            yield Fact(f"{name}: {mode}", state)


def accelerator_facts() -> Iterator[Fact]:
    """Yield each card of torch's other accelerators, in a line those without one; nothing where it has no others."""
    from pytest_msprobe.devices.accelerator import accelerator_types
    from pytest_msprobe.devices.registry import DeviceRegistry

    without_card = []
    for name in accelerator_types():
        if name in _TRACES:
            continue
        try:
            has_card = DeviceRegistry().get(name).count() > 0
        except Exception as error:
            # A backend may raise anything.
            yield Fact(name, f"its cards cannot be counted: {_cause(error)}", "broken")
            continue
        if has_card:
            yield from device_facts(name)
        else:
            without_card.append(name)
    if without_card:
        yield Fact("others", f"no card of {', '.join(without_card)} is visible", "absent")


def need_facts(path: str) -> Iterator[Fact]:
    """Yield what the records of a dump ask of torch: dtypes and operations that this one lacks."""
    yield from lacking_facts(Path(path))


# Any other name is a device type's.
_PROBES: dict[str, Callable[..., Iterator[Fact]]] = {
    "torch": torch_facts,
    "MindSpore": mindspore_facts,
    "accelerators": accelerator_facts,
    "records": need_facts,
}


def answer(words: Sequence[str]) -> list[Fact]:
    """Return the facts of one probe; what it raises is the last of them."""
    name, *arguments = words
    facts: list[Fact] = []
    try:
        facts.extend(_PROBES[name](*arguments) if name in _PROBES else device_facts(name))
    except Exception as error:
        # A half-installed library may raise anything.
        facts.append(Fact(name, _cause(error), "absent" if _is_absent(name) else "broken"))
    return facts


def _is_absent(name: str) -> bool:
    """Return whether there is no trace of what could not be used: neither its package nor a card."""
    package, cards = _TRACES.get(name, ("torch", ""))
    is_installed = name != "cuda" and find_spec(package) is not None
    return not is_installed and not (cards and any(Path("/dev").glob(cards)))


def _cause(error: BaseException) -> str:
    """Return what an error says, and the first of those that led to it: that names the library that is missing."""
    first = error
    while (former := first.__cause__ or first.__context__) is not None:
        first = former
    texts = [_line(error), _line(first)]
    return texts[0] if texts[1] in texts[0] else f"{texts[0]} ({texts[1]})"


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        answered = answer(sys.argv[1:])
    print(f"{_MARK}{msgspec.json.encode(answered).decode()}", flush=True)
    # Libraries that are half installed may hang or crash where they are unloaded.
    os._exit(0)
