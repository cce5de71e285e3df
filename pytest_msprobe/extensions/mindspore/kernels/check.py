"""The check of one kernel of a static graph: nothing runs but the definition, and what was recorded is the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from torch import Tensor

from msprobe_hooks.dump.kernel_dump import Kernel
from msprobe_hooks.dump.names import ApiName, parse_api_name
from msprobe_hooks.dump.schema import Element, ForwardRecord, TensorElement, tensors_of
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Statement
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
from msprobe_standards.verdict import Verdict
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.calls.subject import Subject
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.extensions.mindspore.kernels.fingerprints import takes_a_view
from pytest_msprobe.extensions.mindspore.kernels.kernel_call import KernelCall, as_list, settings_of_forward
from pytest_msprobe.extensions.mindspore.kernels.previous_iteration import element_before
from pytest_msprobe.extensions.mindspore.kernels.registry import Definition, definition_of
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skip_reasons import Skip, SkipReason


def check_kernel(dump: GraphDump, name: str, setup: ReplayConfig) -> DirectionResult:
    """Judge what a kernel gave by a golden definition of what it was given.

    Raises RecordError where one of its files is not whole, DumpError where one is unusable.
    """
    dump.body(name)
    try:
        return replace(_replay(dump, name, setup).forward(), record=name)
    except Skip as skip:
        return DirectionResult(name, Verdict("skip", "", str(skip)), skip=skip.reason)


def _replay(dump: GraphDump, name: str, setup: ReplayConfig) -> Replay:
    kernel = dump.kernels[name]
    definition = definition_of(kernel.type)
    if hardware(setup.device) == "cpu" and kernel.is_mislabelled:
        raise Skip(SkipReason.MISLABELLED, kernel.type)
    if takes_a_view(dump, kernel):
        raise Skip(SkipReason.OF_A_VIEW, kernel.type)
    call = _call(dump, kernel, definition)
    results = [load_tensor(element, dump.tensor_folder) for element in tensors_of(call.forward.output)]
    settings = settings_of_forward(dump, kernel.type)
    computed = _Computed(kernel.type, definition, results, settings, dump.statement(kernel))

    def trial_of(subject: Subject, device: Device) -> Trial:
        trial = Trial(subject, device)
        trial.target = Run(results, {}, (), {})
        return trial

    def load(element: TensorElement, path: str) -> Tensor:
        return load_tensor(element, dump.tensor_folder)

    return Replay(call, setup, source=load, function=computed, trial_of=trial_of)


def _call(dump: GraphDump, kernel: Kernel, definition: Definition) -> Call:
    """Return a kernel as a call: its inputs by slot, as they were before, and the results that are judged."""
    before = {slot: element_before(dump, kernel.inputs[slot]) for slot in definition.changes if slot in kernel.inputs}
    known = {slot: element for slot, element in before.items() if element is not None}
    results = [*kernel.outputs.values()][: definition.outputs]
    if not results and len(known) < len(definition.changes):
        raise Skip(SkipReason.CHANGED_INPUTS, kernel.type)
    results += [kernel.inputs[slot] for slot in known]
    inputs = {slot: known.get(slot) if slot in before else element for slot, element in kernel.inputs.items()}
    name = parse_api_name(kernel.record)
    return Call(
        name=name,
        forward=ForwardRecord(
            name.forward,
            args=[_in_torch_terms(inputs.get(slot)) for slot in range(max(inputs, default=-1) + 1)],
            kwargs={},
            parameters={},
            output=[_in_torch_terms(element) for element in results],
        ),
        backward=None,
        tensor_folder=dump.tensor_folder,
        counterpart=ApiName("Kernel", definition.api, name.call, name.direction),
    )


def _in_torch_terms(element: TensorElement | None) -> Element:
    return element and msgspec.structs.replace(element, dtype=torch_dtype_name(element.dtype))


@dataclass(frozen=True, slots=True)
class _Computed:
    """A definition as a function of a kernel's inputs by slot, whose results have the shapes of the recorded ones."""

    kind: str
    definition: Definition
    results: list[Tensor]
    settings: Mapping[str, Any]
    statement: Statement | None
    known: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *inputs: Tensor | None) -> list[Tensor]:
        given = KernelCall(self.kind, inputs, self.results, self.settings, self.statement, self.known)
        found = as_list(self.definition.golden(given))
        return [ours.reshape(recorded.shape) for ours, recorded in zip(found, self.results, strict=True)]
