"""Registry of primitives with golden definitions, and torch's name of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_msprobe.extensions.mindspore import functional
from pytest_msprobe.extensions.mindspore.primitives import (
    axes,
    convolution,
    layers,
    optimizer,
    recurrent,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A primitive in torch.

    ``counterpart`` is the torch API of the same meaning, by which policies and traits know it; where none takes the
    same arguments it is the primitive itself. ``golden`` takes the inputs and, by name, settings; without one it is the
    counterpart. ``changes`` are the positions of the inputs that it writes to; where it ``returns`` nothing else, what
    it returns is not judged. ``renamed`` are settings that the counterpart has another name for. ``seed`` is the
    setting without which each run draws other numbers, also that which the gradient is taken of. Of what it returns
    the first ``outputs`` count: the others are memory for the gradient's kernel, which no device promises.
    """

    counterpart: str
    golden: Callable[..., Any] | None = None
    changes: tuple[int, ...] = ()
    returns: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    seed: str | None = None
    outputs: int | None = None


def _step(golden: Callable[..., None], *changes: int) -> Definition:
    """Return the definition of what only writes; the underscore says so, as in torch."""
    return Definition(f"Primitive.{golden.__name__}_", golden, changes, returns=False)


# Without settings, and with torch's arguments.
_AS_IN_TORCH = {
    "ACos": "Torch.acos", "Abs": "Torch.abs", "Acosh": "Torch.acosh", "Add": "Torch.add", "Asin": "Torch.asin",
    "Asinh": "Torch.asinh", "Atan": "Torch.atan", "Atan2": "Torch.atan2", "Atanh": "Torch.atanh",
    "Ceil": "Torch.ceil", "Cos": "Torch.cos", "Cosh": "Torch.cosh",
    "Dense": "Functional.linear", "Div": "Torch.div", "Equal": "Torch.eq", "Erf": "Torch.erf", "Erfc": "Torch.erfc",
    "Exp": "Torch.exp", "ExpandDims": "Torch.unsqueeze", "Expm1": "Torch.expm1", "Floor": "Torch.floor",
    "FloorDiv": "Torch.floor_divide", "FloorMod": "Torch.remainder", "GatherD": "Torch.gather",
    "Greater": "Torch.gt", "GreaterEqual": "Torch.ge", "HSigmoid": "Functional.hardsigmoid",
    "HSwish": "Functional.hardswish", "Identity": "Torch.clone", "IsFinite": "Torch.isfinite", "IsInf": "Torch.isinf",
    "IsNan": "Torch.isnan", "Less": "Torch.lt", "LessEqual": "Torch.le", "Log": "Torch.log", "Log1p": "Torch.log1p",
    "LogicalAnd": "Torch.logical_and", "LogicalNot": "Torch.logical_not", "LogicalOr": "Torch.logical_or",
    "MaskedFill": "Torch.masked_fill", "Maximum": "Torch.maximum", "Minimum": "Torch.minimum",
    "Mish": "Functional.mish", "Mul": "Torch.mul", "Neg": "Torch.neg", "NotEqual": "Torch.ne",
    "OnesLike": "Torch.ones_like", "PReLU": "Functional.prelu", "Pow": "Torch.pow", "ReLU": "Functional.relu",
    "ReLU6": "Functional.relu6", "RealDiv": "Torch.div", "Reciprocal": "Torch.reciprocal",
    "Reshape": "Torch.reshape", "Round": "Torch.round", "Rsqrt": "Torch.rsqrt", "SeLU": "Functional.selu",
    "Select": "Torch.where", "SiLU": "Functional.silu", "Sigmoid": "Torch.sigmoid", "Sign": "Torch.sign",
    "Sin": "Torch.sin", "Sinh": "Torch.sinh", "Softplus": "Functional.softplus", "Softsign": "Functional.softsign",
    "Sqrt": "Torch.sqrt", "Square": "Torch.square", "Sub": "Torch.sub", "Tan": "Torch.tan", "Tanh": "Torch.tanh",
    "Tile": "Torch.tile", "Transpose": "Torch.permute", "Trunc": "Torch.trunc", "Xlogy": "Torch.xlogy",
    "ZerosLike": "Torch.zeros_like",
}  # fmt: skip

#: The primitives that are judged, by the name of their class.
TABLE: dict[str, Definition] = {
    **{name: Definition(counterpart) for name, counterpart in _AS_IN_TORCH.items()},
    # products
    "MatMul": Definition("Torch.matmul", layers.matmul),
    "BatchMatMul": Definition("Torch.matmul", layers.matmul),
    "BiasAdd": Definition("Torch.add", layers.bias_add),
    # windows
    "Conv2D": Definition("Functional.conv2d", convolution.convolution),
    "Conv3D": Definition("Functional.conv3d", convolution.convolution),
    "Conv2DBackpropInput": Definition("Functional.conv_transpose2d", convolution.convolution_of_gradient),
    "Conv2DTranspose": Definition("Functional.conv_transpose2d", convolution.convolution_of_gradient),
    "Conv3DTranspose": Definition("Functional.conv_transpose3d", convolution.transposed_convolution_3d),
    "MaxPool": Definition("Functional.max_pool2d", convolution.max_pool_2d),
    "MaxPool3D": Definition("Functional.max_pool3d", convolution.max_pool_3d),
    "AvgPool": Definition("Functional.avg_pool2d", convolution.avg_pool_2d),
    "AvgPool3D": Definition("Functional.avg_pool3d", convolution.avg_pool_3d),
    # recurrent layers
    "LSTM": Definition("Primitive.LSTM", recurrent.lstm, outputs=3),
    "DynamicRNN": Definition("Primitive.DynamicRNN", recurrent.dynamic_rnn, outputs=3),
    "DynamicGRUV2": Definition("Primitive.DynamicGRUV2", recurrent.dynamic_gru, outputs=2),
    # normalisation
    "BatchNorm": Definition("Primitive.BatchNorm", layers.batch_norm, (3, 4)),
    "LayerNorm": Definition("Torch.native_layer_norm", layers.layer_norm),
    "GroupNorm": Definition("Torch.native_group_norm", layers.group_norm),
    "InstanceNorm": Definition("Primitive.InstanceNorm", layers.instance_norm, outputs=1),
    "InstanceNormV2": Definition("Primitive.InstanceNorm", layers.instance_norm, outputs=1),
    "RmsNorm": Definition("Functional.rms_norm", layers.rms_norm),
    "L2Normalize": Definition("Functional.normalize", layers.l2_normalize),
    # other places, other shapes
    "Shape": Definition("Tensor.shape", axes.shape),
    "DType": Definition("Primitive.DType", axes.dtype),
    "Rank": Definition("Tensor.dim", functional.rank),
    "Cast": Definition("Tensor.to", functional.cast),
    "Size": Definition("Tensor.numel", functional.size),
    "Concat": Definition("Torch.cat", axes.concat),
    "Stack": Definition("Torch.stack", axes.stack),
    "Split": Definition("Torch.split", axes.split),
    "Unstack": Definition("Torch.unbind", axes.unstack),
    "Squeeze": Definition("Torch.squeeze", axes.squeeze),
    "Flatten": Definition("Torch.flatten", lambda x: x.flatten(1)),
    "BroadcastTo": Definition("Torch.broadcast_to", axes.broadcast_to),
    "Gather": Definition("Primitive.Gather", axes.gather),
    "OneHot": Definition("Functional.one_hot", axes.one_hot),
    "ReverseV2": Definition("Torch.flip", axes.reverse),
    "Slice": Definition("Torch.narrow", axes.slice_of),
    "StridedSlice": Definition("Torch.narrow", axes.strided_slice),
    "Pad": Definition("Functional.pad", axes.pad),
    # reductions
    "ReduceSum": Definition("Torch.sum", axes.total),
    "ReduceMean": Definition("Torch.mean", axes.reduction(torch.mean)),
    "ReduceProd": Definition("Torch.prod", axes.reduction(axes.product)),
    "ReduceMax": Definition("Torch.amax", axes.reduction(torch.amax)),
    "ReduceMin": Definition("Torch.amin", axes.reduction(torch.amin)),
    "ReduceAll": Definition("Torch.all", axes.reduction(torch.all)),
    "ReduceAny": Definition("Torch.any", axes.reduction(torch.any)),
    "ArgMaxWithValue": Definition("Primitive.ArgMaxWithValue", axes.with_place(torch.max)),
    "ArgMinWithValue": Definition("Primitive.ArgMinWithValue", axes.with_place(torch.min)),
    "Argmax": Definition("Torch.argmax", axes.place_of(torch.argmax)),
    "Argmin": Definition("Torch.argmin", axes.place_of(torch.argmin)),
    "CumSum": Definition("Torch.cumsum", axes.cumsum),
    "TopK": Definition("Torch.topk", axes.topk),
    # functions of one tensor
    "Softmax": Definition("Torch.softmax", layers.softmax),
    "LogSoftmax": Definition("Torch.log_softmax", layers.log_softmax),
    "GeLU": Definition("Functional.gelu", layers.gelu),
    "Elu": Definition("Functional.elu", layers.elu),
    "AddN": Definition("Torch.sum", layers.add_n),
    "Dropout": Definition("Torch._fused_dropout", layers.dropout, renamed={"keep_prob": "p"}, seed="Seed0"),
    # losses
    "SoftmaxCrossEntropyWithLogits": Definition(
        "Primitive.SoftmaxCrossEntropyWithLogits", layers.softmax_cross_entropy
    ),
    "SparseSoftmaxCrossEntropyWithLogits": Definition("Functional.cross_entropy", layers.sparse_softmax_cross_entropy),
    "NLLLoss": Definition("Functional.nll_loss", layers.nll_loss),
    "BinaryCrossEntropy": Definition("Functional.binary_cross_entropy", layers.binary_cross_entropy),
    "BCEWithLogitsLoss": Definition(
        "Functional.binary_cross_entropy_with_logits", layers.binary_cross_entropy_with_logits
    ),
    "SigmoidCrossEntropyWithLogits": Definition(
        "Functional.binary_cross_entropy_with_logits", layers.sigmoid_cross_entropy
    ),
    "SmoothL1Loss": Definition("Functional.smooth_l1_loss", layers.smooth_l1_loss),
    "KLDivLoss": Definition("Functional.kl_div", layers.kl_div),
    "L2Loss": Definition("Primitive.L2Loss", layers.l2_loss),
    # steps of optimizers
    "Adam": _step(optimizer.adam, 0, 1, 2),
    "AdamWeightDecay": _step(optimizer.adam_weight_decay, 0, 1, 2),
    "ApplyMomentum": _step(optimizer.momentum, 0, 1),
    "ApplyRMSProp": _step(optimizer.rms_prop, 0, 1, 2),
    "ApplyAdagrad": _step(optimizer.adagrad, 0, 1),
    "Assign": _step(optimizer.assign, 0),
    "AssignAdd": _step(optimizer.assign_add, 0),
    "AssignSub": _step(optimizer.assign_sub, 0),
}
