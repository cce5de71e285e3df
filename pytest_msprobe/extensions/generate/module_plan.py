"""Which modules are written for the chosen records of a dump, and what is left out and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from msprobe_hooks.dump.names import api_record, is_backward_api, parse_api_name, split_direction
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError, RecordError
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.extensions.explore.tensor_repr import tensor_text
from pytest_msprobe.extensions.generate.call_source import spell_call
from pytest_msprobe.extensions.generate.function_source import SpelledFunction
from pytest_msprobe.extensions.generate.inputs import SeenInput
from pytest_msprobe.extensions.generate.language import Language, language_of
from pytest_msprobe.extensions.generate.output_folder import Content
from pytest_msprobe.extensions.generate.recorded_tensors import FOLDER, TensorFiles, is_large, tensor_bytes, with_digest
from pytest_msprobe.extensions.generate.source_format import Code, depth, string
from pytest_msprobe.modes.check.layout_choice import LayoutChooser
from pytest_msprobe.results.skip_reasons import Skip, SkipReason

# Python refuses source with more than 200 open brackets.
_DEEPEST = 100
_LONGEST_STEM = 100


@dataclass(frozen=True, slots=True)
class Module:
    """What one test module holds: an API, its calls by name without direction, and the records to test.

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
    for key, wanted in _by_call(records).items():
        try:
            call, refused = _read(dump, key)
            call = language.in_torch_terms(layouts.chosen(dump, call))
            function = language.function(call, references)
            code = _spelled(call, language, files if real_data else None)
        except (Skip, DumpError, ValueError) as error:
            left_out |= dict.fromkeys(wanted, str(error))
            continue
        api = call.name.qualified_api
        for record in wanted:
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
    for given in inputs:
        language = language_of(given.framework)
        stem = f"test_{safe_stem(given.name)}"
        if stem in stems or len(stem) > _LONGEST_STEM:
            # Cases below one folder may be called alike.
            stem = with_digest(stem[:_LONGEST_STEM], f"{len(stems)} {given.name}")
        stems.add(stem)
        try:
            call = language.in_torch_terms(given.call)
            function = language.function(call, references)
            large = {path: tensor for path, tensor in given.tensors.items() if is_large(tensor)}
            own = {path: f"{FOLDER}/{stem}.{path.rstrip('.')}.pt" for path in large}
            spelled = {
                path: string(own[path]) if path in own else tensor_text(tensor)
                for path, tensor in given.tensors.items()
            }
            code = spell_call(call, language, lambda _: None, spelled)
        except (Skip, DumpError, ValueError) as error:
            left_out[given.record] = str(error)
            continue
        files |= {own[path]: tensor_bytes(tensor) for path, tensor in large.items()}
        key, direction = split_direction(given.record)
        module = Module(call.name.qualified_api, stem, function, {key: code}, seed=given.seed, inputs=what)
        (module.backward if direction == "backward" else module.forward).append(given.record)
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
    taken: set[str] = set()
    for record in records:
        try:
            api = parse_api_name(record).qualified_api
        except ValueError:
            continue
        if api not in stems:
            stem = f"test_{safe_stem(api)}"
            if stem in taken or len(stem) > _LONGEST_STEM:
                stem = with_digest(stem[:_LONGEST_STEM], api)
            stems[api] = stem
            taken.add(stem)
    return stems
