"""The check of one kernel of a static graph, whose recorded results are the target, and kernels' definitions.

Kernels have run already: nothing runs here but definitions, and the framework of kernels says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from msprobe_hooks.dump.json_records import Kernel
from msprobe_hooks.dump.names import ApiName, parse_api_name
from msprobe_hooks.dump.schema import Element, ForwardRecord, TensorElement, tensors_of
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Statement
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
from msprobe_standards.verdict import Verdict
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Subject
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.extensions.mindspore.kernels import backward, forward, layers, optimizer
from pytest_msprobe.extensions.mindspore.kernels.kernel_call import (
    KernelCall,
    as_list,
    element_before,
    settings_of_forward,
    takes_a_view,
)
from pytest_msprobe.extensions.mindspore.primitives import axes
from pytest_msprobe.extensions.mindspore.primitives.layers import gelu
from pytest_msprobe.extensions.mindspore.primitives.registry import TABLE as PRIMITIVES
from pytest_msprobe.results.outcomes import BaseSkipReason, Skip
from pytest_msprobe.results.result import DirectionResult

_OF_ELEMENTS: Final = frozenset(
    """
    Abs ACos Acosh Add Asin Asinh Atan Atan2 Atanh Ceil Cos Cosh Div Equal Erf Erfc Exp Expm1 Floor FloorDiv
    FloorMod Greater GreaterEqual HSigmoid HSwish Identity IsFinite IsInf IsNan Less LessEqual Log Log1p LogicalAnd
    LogicalNot LogicalOr MaskedFill Maximum Minimum Mish Mul Neg NotEqual OnesLike Pow ReLU ReLU6 RealDiv Reciprocal
    Round Rsqrt SeLU Select SiLU Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square Sub Tan Tanh Trunc Xlogy
    ZerosLike
    """.split()
)
_HOMES = {"Torch": torch, "Functional": F}


class KernelSkip(BaseSkipReason):
    """Reasons for which a kernel of a static graph is not judged."""

    NO_DEFINITION = "no golden definition for kernels of this type"
    MISLABELLED = "MindSpore wrote values of a wider dtype under the name of a narrow one"
    OF_A_VIEW = "MindSpore wrote the memory of a view, whose elements are in another order"
    CHANGED_INPUTS = "the kernel changed its inputs, and no dump of the iteration before holds them"


@dataclass(frozen=True, slots=True)
class Definition:
    """A kernel in torch.

    ``api`` is torch's name of it, by which policies know it. ``golden`` gives the results that are judged: the first
    ``outputs`` of the recorded ones (None for all), and behind them the inputs at ``changes`` that it writes to, where
    they are known from before.
    """

    api: str
    golden: Callable[[KernelCall], Any]
    outputs: int | None = None
    changes: tuple[int, ...] = ()


def _step(name: str, golden: optimizer.Step, *changes: int) -> Definition:
    return Definition(name, golden, 0, changes)


_OWN: Mapping[str, Definition] = {
    # products
    "MatMul": Definition("matmul", forward.matmul),
    "BatchMatMul": Definition("matmul", forward.batch_matmul),
    "BiasAdd": Definition("add", forward.bias_add),
    "BiasAddGrad": Definition("sum", backward.bias_add),
    # windows
    "Conv2D": Definition("conv2d", layers.convolution),
    "Conv2DBackpropInput": Definition("convolution_backward", layers.gradient_of_image),
    "Conv2DBackpropFilter": Definition("convolution_backward", layers.gradient_of_filters),
    "MaxPool": Definition("max_pool2d", layers.max_pool),
    "MaxPoolGrad": Definition("max_pool2d_backward", layers.max_pool_gradient),
    "AvgPool": Definition("avg_pool2d", layers.avg_pool),
    "AvgPoolGrad": Definition("avg_pool2d_backward", layers.avg_pool_gradient),
    "Conv3D": Definition("conv3d", layers.convolution),
    "Conv3DBackpropInput": Definition("convolution_backward", layers.gradient_of_volume),
    "Conv3DBackpropFilter": Definition("convolution_backward", layers.gradient_of_filters_3d),
    "AvgPool3D": Definition("avg_pool3d", layers.avg_pool_3d),
    "AvgPool3DGrad": Definition("avg_pool3d_backward", layers.avg_pool_3d_gradient),
    # recurrent layers
    "LSTM": Definition("LSTM", layers.lstm, 3),
    "LSTMGrad": Definition("lstm_backward", layers.lstm_gradient),
    # normalisation
    "LayerNorm": Definition("native_layer_norm", forward.layer_norm),
    "LayerNormGrad": Definition("native_layer_norm_backward", backward.layer_norm),
    "BatchNorm": Definition("batch_normalisation", optimizer.batch_norm, 1, (3, 4)),
    "BatchNormGrad": Definition("native_batch_norm_backward", backward.batch_norm),
    "GroupNorm": Definition("native_group_norm", forward.group_norm),
    "GroupNormGrad": Definition("native_group_norm_backward", backward.group_norm),
    "Softmax": Definition("softmax", forward.softmax),
    "LogSoftmax": Definition("log_softmax", forward.log_softmax),
    "SparseSoftmaxCrossEntropyWithLogits": Definition("cross_entropy", forward.sparse_softmax_cross_entropy),
    "LogSoftmaxGrad": Definition("log_softmax_backward", backward.log_softmax),
    # other places, other shapes, other dtypes
    "Reshape": Definition("reshape", forward.elements),
    "ExpandDims": Definition("unsqueeze", forward.elements),
    "Squeeze": Definition("squeeze", forward.elements),
    "Flatten": Definition("flatten", forward.elements),
    "Cast": Definition("to", forward.cast),
    "Transpose": Definition("permute", forward.transpose),
    "Concat": Definition("cat", forward.concat),
    "Split": Definition("split", forward.split),
    "Slice": Definition("narrow", forward.slice_of),
    "StridedSlice": Definition("narrow", forward.strided_slice),
    "StridedSliceGrad": Definition("slice_backward", backward.strided_slice),
    "FillV2": Definition("full", forward.fill),
    "Gather": Definition("index_select", forward.gather),
    "GatherD": Definition("take_along_dim", forward.gather_elements),
    "GatherDGradV2": Definition("scatter_add", backward.gather_elements),
    "UnsortedSegmentSum": Definition("index_add", forward.segment_sum),
    "Tile": Definition("tile", forward.tile),
    # reductions
    "ReduceSum": Definition("sum", forward.reduction(torch.sum)),
    "ReduceMean": Definition("mean", forward.reduction(torch.mean)),
    "ReduceProd": Definition("prod", forward.reduction(axes.product)),
    "ReduceMax": Definition("amax", forward.reduction(torch.amax)),
    "ReduceMin": Definition("amin", forward.reduction(torch.amin)),
    "ReduceAll": Definition("all", forward.reduction(torch.all)),
    "ReduceAny": Definition("any", forward.reduction(torch.any)),
    "AddN": Definition("add", forward.add_n),
    # functions of elements
    "GeLU": Definition("gelu", forward.on_elements(gelu)),
    "ReluGrad": Definition("threshold_backward", backward.of_result(backward.relu, 1, 0)),
    "ReLU6Grad": Definition("hardtanh_backward", backward.of_input(F.relu6, 1, 0)),
    "SigmoidGrad": Definition("sigmoid_backward", backward.of_result(backward.aten.sigmoid_backward, 0, 1)),
    "TanhGrad": Definition("tanh_backward", backward.of_result(backward.aten.tanh_backward, 0, 1)),
    "SqrtGrad": Definition("sqrt_backward", backward.of_result(backward.sqrt, 0, 1)),
    "RsqrtGrad": Definition("rsqrt_backward", backward.of_result(backward.rsqrt, 0, 1)),
    "ReciprocalGrad": Definition("reciprocal_backward", backward.of_result(backward.reciprocal, 0, 1)),
    "AbsGrad": Definition("abs_backward", backward.of_input(torch.abs, 0, 1)),
    "GeLUGrad": Definition("gelu_backward", backward.of_input(gelu, 1, 0)),
    "SiLUGrad": Definition("silu_backward", backward.of_input(F.silu, 1, 0)),
    "HSwishGrad": Definition("hardswish_backward", backward.of_input(F.hardswish, 1, 0)),
    "HSigmoidGrad": Definition("hardsigmoid_backward", backward.of_input(F.hardsigmoid, 1, 0)),
    "Dropout": Definition("mul", forward.dropout),
    "DropoutGrad": Definition("mul", backward.dropout),
    # steps of optimizers
    "Adam": _step("adam", optimizer.adam, 0, 1, 2),
    "AdamWeightDecay": _step("adam_weight_decay", optimizer.adam_weight_decay, 0, 1, 2),
    "ApplyMomentum": _step("momentum", optimizer.momentum, 0, 1),
    "ApplyRMSProp": _step("rms_prop", optimizer.rms_prop, 0, 1, 2),
    "ApplyAdagrad": _step("adagrad", optimizer.adagrad, 0, 1),
    "SGD": _step("sgd", optimizer.sgd, 0, 3, 5),
    "Assign": Definition("copy", forward.assign),
    "AssignAdd": _step("add", optimizer.assign_add, 0),
    "AssignSub": _step("sub", optimizer.assign_sub, 0),
}


def definition_of(kind: str) -> Definition:
    """Return the definition of the kernels of a type. Raises Skip that names it where there is none."""
    if kind in _OWN:
        return _OWN[kind]
    primitive = PRIMITIVES.get(kind)
    if primitive is None or kind not in _OF_ELEMENTS:
        raise Skip(KernelSkip.NO_DEFINITION, kind)
    home, _, api = primitive.counterpart.partition(".")
    return Definition(api, forward.on_elements(getattr(_HOMES[home], api)))


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
        raise Skip(KernelSkip.MISLABELLED, kernel.type)
    if takes_a_view(dump, kernel):
        raise Skip(KernelSkip.OF_A_VIEW, kernel.type)
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
    elements_before = {slot: element for slot, element in before.items() if element is not None}
    results = [*kernel.outputs.values()][: definition.outputs]
    if not results and len(elements_before) < len(definition.changes):
        raise Skip(KernelSkip.CHANGED_INPUTS, kernel.type)
    results += [kernel.inputs[slot] for slot in elements_before]
    inputs = {slot: elements_before.get(slot) if slot in before else element for slot, element in kernel.inputs.items()}
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
    inferred: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *inputs: Tensor | None) -> list[Tensor]:
        call = KernelCall(self.kind, inputs, self.results, self.settings, self.statement, self.inferred)
        results = as_list(self.definition.golden(call))
        return [ours.reshape(recorded.shape) for ours, recorded in zip(results, self.results, strict=True)]


class WroteDump(CpuDevice):
    """Device that a dump was written on, for the rules that are about it; tensors of files are on the CPU."""

    def __init__(self, name: str) -> None:
        self.name = name

    def describe(self) -> str:
        """Return that nothing runs on it."""
        return f"kernels recorded on {self.name}, none is run"


class RecordedKernels:
    """MindSpore's kernels, as a graph ran them."""

    name = "mindspore"
    autocasts = False

    def device(self, devices: DeviceRegistry, name: str) -> Device:
        """Return the kind of device that is named, which need not be here."""
        return WroteDump(hardware(devices.get(name)))

    def describe(self, device: Device) -> str:
        """Return what the dump was written on."""
        return device.describe()

    def math_modes(self, device: Device) -> dict[str, str]:
        """Return nothing: the modes of this process are not those of the recording."""
        return {}

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call, which is in torch's terms."""
        return call

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Device, function: Callable[..., Any] | None
    ) -> Functions:
        """Return the definition, as the target too, which is not run."""
        assert function is not None
        return Functions(function, function)
