"""Plan and text of generated test modules, their recorded tensors, and records that are left out with the reason."""

from __future__ import annotations

import hashlib
import io
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

import torch

from msprobe_hooks.dump.containers import split_name
from msprobe_hooks.dump.names import api_record, is_backward_api, parse_api_name, split_direction
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError, RecordError
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.engine.values.tensor_text import MOST_NUMBERS, tensor_text
from pytest_msprobe.extensions.generate.call_source import Language, language_of, spell_call
from pytest_msprobe.extensions.generate.inputs import SeenInput
from pytest_msprobe.extensions.generate.output_folder import Content
from pytest_msprobe.extensions.generate.source_format import (
    Code,
    Group,
    SpelledFunction,
    atoms,
    depth,
    dict_of,
    docstring,
    lay_out,
    list_of,
    literal,
    string,
)
from pytest_msprobe.modes.check.layout_choice import LayoutChooser
from pytest_msprobe.results.outcomes import Skip, SkipReason

FOLDER = "tensors"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
_LONGEST = 120


class TensorFiles:
    """Files of a dump's tensor folder that are copied, and their places below the output folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        # Some file systems do not distinguish upper from lower case.
        self._taken: set[str] = set()
        #: By its new path, which is relative and has forward slashes: the file to copy, or what reads a tensor that
        #: lies with others in one file, as a file of its own.
        self.copies: dict[str, Content] = {}

    def path_of(self, element: TensorElement) -> str | None:
        """Return the new path of a tensor's file, None where no file was recorded.

        Raises Skip where the file is missing, DumpError where it is not the tensor as recorded, below its folder.
        """
        file = element.data_name
        if file is None:
            return None
        load_tensor(element, self._folder)
        if file not in self._names:
            contained = split_name(file)
            name = safe_name(file if contained is None else f"{contained[1]}.pt")
            if name.lower() in self._taken:
                name = with_digest(name, file)
            self._taken.add(name.lower())
            self._names[file] = path = f"{FOLDER}/{name}"
            self.copies[path] = self._folder / file if contained is None else partial(self._extracted, element)
        return self._names[file]

    def _extracted(self, element: TensorElement) -> bytes:
        return tensor_bytes(load_tensor(element, self._folder))


def is_large(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is too large to be spelled in a module."""
    if tensor.numel() <= MOST_NUMBERS or not tensor.is_contiguous():
        return tensor.numel() > MOST_NUMBERS
    elements = tensor.detach().view(-1).view(torch.uint8).view(tensor.numel(), -1)
    return not bool((elements == elements[:1]).all())


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Return the file of a tensor, which `load_tensor` reads; its elements are stored in their order."""
    file = io.BytesIO()
    torch.save(tensor.detach().contiguous(), file)
    return file.getvalue()


def safe_name(recorded: str) -> str:
    """Return a file name for what a dump calls a file: itself where that is safe, else cleaned and made unique."""
    cleaned = _UNSAFE.sub("_", recorded).lstrip(".")
    if cleaned == recorded and len(recorded) <= _LONGEST:
        return recorded
    return with_digest(cleaned[-_LONGEST:].lstrip("."), recorded)


def with_digest(name: str, recorded: str) -> str:
    """Return a file name that no other recorded name gets."""
    path = PurePosixPath(name)
    digest = hashlib.blake2b(recorded.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{path.stem}_{digest}{path.suffix}"


# Python refuses source with more than 200 open brackets.
_DEEPEST = 100
_LONGEST_STEM = 100


@dataclass(frozen=True, slots=True)
class Module:
    """Contents of one test module: an API, its calls by name without direction, and the records to test.

    ``seed`` is that of the module alone; None where it has those of all. ``inputs`` says in words what the input is
    where it is given, and not that of the record.
    """

    api: str
    stem: str
    function: SpelledFunction
    calls: dict[str, Code] = field(default_factory=dict)
    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    seed: int | None = None
    inputs: str = ""

    @property
    def file(self) -> str:
        """The module's file name."""
        return f"{self.stem}.py"

    @property
    def records(self) -> list[str]:
        """The records that are tested, forward ones first."""
        return [*self.forward, *self.backward]


@dataclass(frozen=True, slots=True)
class Plan:
    """The modules to write, the tensor files by their path, and the reason for each record left out.

    A tensor's file is one to copy, the bytes to write, or what reads them.
    """

    modules: list[Module]
    tensor_files: dict[str, Content]
    left_out: dict[str, str]

    def with_other(self, other: Plan) -> Plan:
        """Return the plan of both."""
        modules = sorted([*self.modules, *other.modules], key=lambda module: module.stem)
        return Plan(modules, self.tensor_files | other.tensor_files, self.left_out | other.left_out)


def make_plan(dump: Dump, records: Iterable[str], *, real_data: bool) -> Plan:
    """Plan the modules for these records of a dump. What cannot be tested is left out with its reason.

    Raises DeviceError where the dump's framework cannot be imported.
    """
    language = language_of(dump.framework)
    stems = _stems(dump.api_names)
    files = TensorFiles(dump.tensor_folder)
    references, layouts = ReferenceRegistry(), LayoutChooser("auto")
    modules: dict[str, Module] = {}
    left_out: dict[str, str] = {}
    for key, records_of_call in _by_call(records).items():
        try:
            call, refused = _read(dump, key)
            call = language.in_torch_terms(layouts.chosen(dump, call))
            function = language.function(call, references)
            code = _spelled(call, language, files if real_data else None)
        except (Skip, DumpError, ValueError) as error:
            left_out |= dict.fromkeys(records_of_call, str(error))
            continue
        api = call.name.qualified_api
        for record in records_of_call:
            if is_backward_api(record) and refused:
                left_out[record] = refused
                continue
            module = modules.setdefault(api, Module(api, stems[api], function))
            module.calls[key] = code
            (module.backward if is_backward_api(record) else module.forward).append(record)
    return Plan(sorted(modules.values(), key=lambda module: module.stem), {**files.copies}, left_out)


def plan_of_inputs(inputs: Iterable[SeenInput], what: str) -> Plan:
    """Plan a module for each input that a failure was seen with; ``what`` says in words what inputs these are.

    Raises DeviceError where a framework cannot be imported.
    """
    modules, files, left_out = list[Module](), dict[str, Content](), dict[str, str]()
    references, stems = ReferenceRegistry(), set[str]()
    for seen_input in inputs:
        language = language_of(seen_input.framework)
        stem = f"test_{safe_stem(seen_input.name)}"
        if stem in stems or len(stem) > _LONGEST_STEM:
            # Cases below one folder may be called alike.
            stem = with_digest(stem[:_LONGEST_STEM], f"{len(stems)} {seen_input.name}")
        stems.add(stem)
        try:
            call = language.in_torch_terms(seen_input.call)
            function = language.function(call, references)
            large = {path: tensor for path, tensor in seen_input.tensors.items() if is_large(tensor)}
            own = {path: f"{FOLDER}/{stem}.{path.rstrip('.')}.pt" for path in large}
            spelled = {
                path: string(own[path]) if path in own else tensor_text(tensor)
                for path, tensor in seen_input.tensors.items()
            }
            code = spell_call(call, language, lambda _: None, spelled)
        except (Skip, DumpError, ValueError) as error:
            left_out[seen_input.record] = str(error)
            continue
        files |= {own[path]: tensor_bytes(tensor) for path, tensor in large.items()}
        key, direction = split_direction(seen_input.record)
        module = Module(call.name.qualified_api, stem, function, {key: code}, seed=seen_input.seed, inputs=what)
        (module.backward if direction == "backward" else module.forward).append(seen_input.record)
        modules.append(module)
    return Plan(sorted(modules, key=lambda module: module.stem), files, left_out)


def _by_call(records: Iterable[str]) -> dict[str, list[str]]:
    calls: dict[str, list[str]] = {}
    for record in records:
        calls.setdefault(split_direction(record)[0], []).append(record)
    return calls


def _read(dump: Dump, key: str) -> tuple[Call, str]:
    """Read a call, and say what is wrong with its backward record where that alone is malformed."""
    forward = parse_api_name(api_record(key, "forward")).forward
    if forward not in dump.records:
        raise Skip(SkipReason.NO_FORWARD)
    try:
        call, refused = read_call(dump, forward), ""
    except RecordError as error:
        call, refused = read_call(dump, forward, with_backward=False), str(error)
    record = call.forward
    if record.exception is not None:
        raise Skip(SkipReason.RAISED, record.exception)
    if not (record.args or record.kwargs) and record.output == []:
        raise Skip(SkipReason.NO_ARGUMENTS)
    return call, refused


def _spelled(call: Call, language: Language, files: TensorFiles | None) -> Code:
    def file_of(element: TensorElement) -> str | None:
        return None if files is None else files.path_of(element)

    code = spell_call(call, language, file_of)
    if depth(code) > _DEEPEST:
        raise Skip(SkipReason.LOST_ARGUMENT, f"its arguments are nested deeper than {_DEEPEST} levels")
    return code


def safe_stem(name: str) -> str:
    """Return what a name is called as part of a module's."""
    return re.sub("[^a-z0-9_]", "_", name.lower())


def _stems(records: Iterable[str]) -> dict[str, str]:
    """Return a module name for each API of a dump, whatever is chosen of it, so that a name stays an API's own."""
    stems: dict[str, str] = {}
    used: set[str] = set()
    for record in records:
        try:
            api = parse_api_name(record).qualified_api
        except ValueError:
            continue
        if api not in stems:
            stem = f"test_{safe_stem(api)}"
            if stem in used or len(stem) > _LONGEST_STEM:
                stem = with_digest(stem[:_LONGEST_STEM], api)
            stems[api] = stem
            used.add(stem)
    return stems


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
    """Source of modules: the dump's file name, the command that made them, the seeds of their inputs.

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
