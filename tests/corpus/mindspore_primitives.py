"""Calls of MindSpore's primitives as cells make them: with what each is made, and what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import auto_generate
from mindspore.ops.operations import nn_ops

from msprobe_hooks import record

# MindSpore's own functions take some of them from where no program is meant to.
_HOMES = (ops, auto_generate, nn_ops)

#: An input: the shape of a float32 tensor, or a value as it is given.
Input = Any


@dataclass(frozen=True)
class Held:
    """A primitive that a cell holds, by its class's name, and one call; ``differentiable`` are inputs by position."""

    kind: str
    inputs: tuple[Input, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    differentiable: tuple[int, ...] = (0,)

    def make(self) -> Any:
        return next(getattr(home, self.kind) for home in _HOMES if hasattr(home, self.kind))(**self.settings)


@dataclass(frozen=True)
class Drawn:
    """A tensor that is drawn from a range."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: Any = np.float32

    def tensor(self, generator: np.random.Generator) -> Tensor:
        if self.dtype is np.bool_:
            return Tensor(generator.random(self.shape) > 0.5)
        if np.issubdtype(self.dtype, np.integer):
            return Tensor(generator.integers(int(self.low), int(self.high), self.shape).astype(self.dtype))
        return Tensor(generator.uniform(self.low, self.high, self.shape).astype(self.dtype))


def _floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Drawn:
    return Drawn(shape, low, high)


def _whole(*shape: int, below: int, dtype: Any = np.int32) -> Drawn:
    return Drawn(shape, 0, below, dtype)


def _flags(*shape: int) -> Drawn:
    return Drawn(shape, dtype=np.bool_)


_X, _Y = _floats(4, 6), _floats(4, 6)
_POSITIVE, _SHARE = _floats(4, 6, low=0.5, high=3.0), _floats(4, 6, low=0.05, high=0.95)
_ROWS = Tensor(np.array([[0.25, 0.5, 0.125, 0.125], [0.0, 0.0, 1.0, 0.0]], np.float32))
_IMAGE, _VOLUME = _floats(2, 4, 9, 8), _floats(2, 2, 5, 6, 7)
_STATE = (_floats(7), _floats(7), _floats(7, low=0.1, high=1.0))
_ONE = 0.9


def _conv(**settings: Any) -> dict[str, Any]:
    return {"out_channel": 6, "kernel_size": (3, 2), **settings}


_FILTERS = _floats(6, 4, 3, 2)

HELD: list[Held] = [
    *[Held(name, (_X,)) for name in "Abs Asinh Atan Cos Erf Erfc Exp Neg ReLU ReLU6 SeLU SiLU Sigmoid Sin".split()],
    *[Held(name, (_X,)) for name in "Sinh Softplus Softsign Square Tan Tanh HSigmoid HSwish Mish GeLU L2Loss".split()],
    *[Held(name, (_X,), differentiable=()) for name in "Ceil Floor IsFinite IsInf IsNan Round Sign Trunc".split()],
    *[Held(name, (_X,), differentiable=()) for name in "ZerosLike OnesLike Shape DType Rank Size".split()],
    *[Held(name, (_POSITIVE,)) for name in "Log Log1p Reciprocal Rsqrt Sqrt".split()],
    *[Held(name, (_SHARE,)) for name in "ACos Asin Atanh Expm1 Cosh".split()],
    Held("Acosh", (_floats(4, 6, low=1.1, high=4.0),)),
    *[Held(name, (_X, _POSITIVE), differentiable=(0, 1)) for name in "Add Sub Mul Div RealDiv Maximum Minimum".split()],
    *[Held(name, (_X, _POSITIVE), differentiable=()) for name in "FloorDiv FloorMod Equal NotEqual Less".split()],
    *[Held(name, (_X, _Y), differentiable=()) for name in "LessEqual Greater GreaterEqual".split()],
    *[Held(name, (_flags(4), _flags(4)), differentiable=()) for name in ("LogicalAnd", "LogicalOr")],
    Held("LogicalNot", (_flags(4),), differentiable=()),
    Held("Pow", (_POSITIVE, _Y), differentiable=(0, 1)),
    Held("Atan2", (_X, _POSITIVE), differentiable=(0, 1)),
    Held("Xlogy", (_X, _POSITIVE), differentiable=(0, 1)),
    Held("PReLU", (_IMAGE, _floats(4, low=0.1, high=0.4)), differentiable=(0, 1)),
    Held("Select", (_flags(4, 6), _X, _Y), differentiable=(1, 2)),
    Held("MaskedFill", (_X, _flags(4, 6), Tensor(0.5, mindspore.float32))),
    Held("Cast", (_X, mindspore.float16), differentiable=()),
    Held("Identity", (_X,)),
    Held("Dense", (_X, _floats(5, 6), _floats(5)), differentiable=(0, 1, 2)),
    # products
    Held("MatMul", (_X, _floats(6, 5)), differentiable=(0, 1)),
    Held("MatMul", (_floats(5, 6), _floats(5, 6)), {"transpose_b": True}, (0, 1)),
    Held("MatMul", (_floats(6, 6), _floats(6, 6)), {"transpose_a": True}, (0, 1)),
    Held("BatchMatMul", (_floats(3, 4, 6), _floats(3, 4, 5)), {"transpose_a": True}, (0, 1)),
    Held("BiasAdd", (_IMAGE, _floats(4)), differentiable=(0, 1)),
    # windows
    Held("Conv2D", (_IMAGE, _FILTERS), _conv(), (0, 1)),
    Held("Conv2D", (_IMAGE, _FILTERS), _conv(pad_mode="same", stride=2), (0, 1)),
    Held("Conv2D", (_IMAGE, _FILTERS), _conv(pad_mode="pad", pad=(1, 2, 0, 1), stride=(2, 1), dilation=2), (0, 1)),
    Held("Conv2D", (_IMAGE, _floats(6, 2, 3, 2)), _conv(group=2), (0, 1)),
    Held("Conv3D", (_VOLUME, _floats(3, 2, 2, 2, 2)), {"out_channel": 3, "kernel_size": 2, "pad_mode": "same"}, (0, 1)),
    Held("Conv3D", (_VOLUME, _floats(3, 2, 2, 2, 2)), {"out_channel": 3, "kernel_size": 2, "stride": 2}, (0, 1)),
    Held(
        "Conv2DTranspose",
        (_floats(2, 6, 4, 4), _FILTERS, (2, 4, 9, 8)),
        _conv(stride=2, pad_mode="pad", pad=(0, 0, 0, 1)),
        (0, 1),
    ),
    Held("MaxPool", (_IMAGE,), {"kernel_size": 3, "strides": 2}),
    Held("MaxPool", (_IMAGE,), {"kernel_size": (2, 3), "strides": (2, 2), "pad_mode": "same"}),
    Held("AvgPool", (_IMAGE,), {"kernel_size": 3, "strides": 2}),
    Held("AvgPool", (_IMAGE,), {"kernel_size": (2, 3), "strides": 2, "pad_mode": "same"}),
    Held("MaxPool3D", (_VOLUME,), {"kernel_size": 2, "strides": 2}),
    Held(
        "MaxPool3D",
        (_floats(1, 2, 5, 5, 6),),
        {"kernel_size": 2, "strides": 2, "pad_mode": "pad", "pad_list": 1, "ceil_mode": True},
    ),
    Held("AvgPool3D", (_VOLUME,), {"kernel_size": 2, "strides": 2}),
    Held("AvgPool3D", (_VOLUME,), {"kernel_size": (2, 3, 2), "strides": 2, "pad_mode": "same"}),
    *[
        Held("AvgPool3D", (_VOLUME,), {"kernel_size": 2, "strides": 2, "pad_mode": "pad", "pad": 1, **settings})
        for settings in ({"ceil_mode": True}, {"count_include_pad": False}, {"divisor_override": 3})
    ],
    # recurrent layers
    *[
        Held(
            "LSTM",
            (_floats(4, 3, 5), _floats(1, 3, 7), _floats(1, 3, 7), _floats(336 + 28 * has_bias, 1, 1)),
            {"input_size": 5, "hidden_size": 7, "num_layers": 1, "has_bias": has_bias, "bidirectional": False}
            | {"dropout": 0.0},
            (0, 1, 2, 3),
        )
        for has_bias in (True, False)
    ],
    Held(
        "LSTM",
        (_floats(4, 3, 5), _floats(2, 3, 7), _floats(2, 3, 7), _floats(728, 1, 1)),
        {"input_size": 5, "hidden_size": 7, "num_layers": 1, "has_bias": True, "bidirectional": True, "dropout": 0.0},
        (0, 1, 2, 3),
    ),
    # normalisation
    Held("GroupNorm", (_IMAGE, 2, _floats(4), _floats(4), 1e-3), {}, (0, 2, 3)),
    Held(
        "InstanceNormV2",
        (_IMAGE, *[_floats(2, 4, 1, 1)] * 3, _floats(2, 4, 1, 1, low=0.5, high=1.5)),
        {"is_training": True, "epsilon": 1e-3},
        (0, 1, 2),
    ),
    Held(
        "BatchNorm",
        (_IMAGE, _floats(4), _floats(4), _floats(4), _floats(4, low=0.5, high=1.5)),
        {"is_training": True, "epsilon": 1e-3, "momentum": 0.2},
        (0, 1, 2),
    ),
    Held("BatchNorm", (_IMAGE, _floats(4), _floats(4), _floats(4), _floats(4, low=0.5, high=1.5)), differentiable=()),
    Held(
        "LayerNorm",
        (_floats(2, 3, 8), _floats(8), _floats(8)),
        {"begin_norm_axis": 2, "begin_params_axis": 2},
        (0, 1, 2),
    ),
    Held("LayerNorm", (_floats(5, 3, 4), _floats(3, 4), _floats(3, 4)), {"epsilon": 1e-3}, (0, 1, 2)),
    Held("L2Normalize", (_X,), {"axis": 1}),
    # other places, other shapes
    Held("ExpandDims", (_X, 1)),
    Held("Reshape", (_X, (6, 4))),
    Held("Transpose", (_floats(2, 3, 4), (2, 0, 1))),
    Held("Tile", (_X, (2, 1))),
    Held("Flatten", (_floats(2, 3, 4),)),
    Held("Concat", ((_X, _floats(4, 2)),), {"axis": 1}),
    Held("Stack", ((_X, _Y),), {"axis": 1}),
    Held("Split", (_X,), {"axis": 1, "output_num": 3}),
    Held("Unstack", (_X,), {"axis": 1}),
    Held("Squeeze", (_floats(4, 1, 6, 1),), {"axis": 1}),
    Held("Squeeze", (_floats(4, 1, 6, 1),)),
    Held("BroadcastTo", (_floats(6),), {"shape": (4, 6)}),
    Held("Gather", (_floats(9, 5), _whole(3, 2, below=9), 0)),
    Held("Gather", (_floats(4, 5, 3), _whole(4, 2, below=5), 1), {"batch_dims": 1}, ()),
    Held("GatherD", (_X, 1, _whole(4, 3, below=6))),
    Held("OneHot", (_whole(5, below=4), 4, Tensor(1.0, mindspore.float32), Tensor(0.0, mindspore.float32)), {}, ()),
    Held("ReverseV2", (_X,), {"axis": [1]}),
    Held("Slice", (_X, (1, 2), (2, 3))),
    Held("StridedSlice", (_X, (1, 0), (4, 6), (2, 3)), {"end_mask": 2}),
    Held("Pad", (_X,), {"paddings": ((1, 0), (2, 3))}),
    # reductions
    *[Held(name, (_X, 1), {"keep_dims": True}) for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")],
    *[Held(name, (_floats(3, 4, 5), (0, 2))) for name in ("ReduceSum", "ReduceMean")],
    Held("ReduceProd", (_POSITIVE, 1)),
    *[Held(name, (_flags(4, 6), 1), differentiable=()) for name in ("ReduceAll", "ReduceAny")],
    *[Held(name, (_X,), {"axis": 1}, ()) for name in ("ArgMaxWithValue", "ArgMinWithValue", "Argmax", "Argmin")],
    Held("CumSum", (_X, 1), {"exclusive": True, "reverse": True}),
    Held("TopK", (_X, 3), differentiable=()),
    Held("AddN", ((_X, _Y),)),
    # functions of one tensor
    Held("Softmax", (_floats(3, 5, 4),), {"axis": 1}),
    Held("LogSoftmax", (_X,), {"axis": 0}),
    Held("Elu", (_X,), {}),
    Held("Dropout", (_floats(64, 48),), {"keep_prob": 0.7}),
    # losses
    Held("SoftmaxCrossEntropyWithLogits", (_floats(2, 4), _ROWS)),
    Held("SparseSoftmaxCrossEntropyWithLogits", (_X, _whole(4, below=6))),
    Held("NLLLoss", (_X, _whole(4, below=6), _floats(6, low=0.5, high=1.5)), {"reduction": "mean"}),
    Held("NLLLoss", (_X, _whole(4, below=6), _floats(6, low=0.5, high=1.5)), {"reduction": "none"}),
    Held("BinaryCrossEntropy", (_SHARE, _SHARE, _POSITIVE), {"reduction": "sum"}),
    Held("BCEWithLogitsLoss", (_X, _SHARE, _POSITIVE, _POSITIVE), {"reduction": "none"}),
    Held("SigmoidCrossEntropyWithLogits", (_X, _SHARE)),
    Held("SmoothL1Loss", (_X, _Y), {"beta": 0.5, "reduction": "mean"}),
    Held("KLDivLoss", (_X, _SHARE), {"reduction": "sum"}),
    # steps of optimizers
    Held("Adam", (*_STATE, 0.81, 0.998, 0.01, _ONE, 0.999, 1e-8, _floats(7)), {}, ()),
    Held("Adam", (*_STATE, 0.81, 0.998, 0.01, _ONE, 0.999, 1e-8, _floats(7)), {"use_nesterov": True}, ()),
    Held("AdamWeightDecay", (*_STATE, 0.01, _ONE, 0.999, 1e-6, 0.1, _floats(7)), {}, ()),
    Held("ApplyMomentum", (*_STATE[:2], 0.1, _floats(7), _ONE), {"use_nesterov": True, "gradient_scale": 0.5}, ()),
    Held("ApplyRMSProp", (_STATE[0], _STATE[2], _STATE[1], 0.01, _floats(7), 0.9, 0.5, 1e-6), {}, ()),
    Held("ApplyAdagrad", (_STATE[0], _STATE[2], 0.01, _floats(7)), {"update_slots": True}, ()),
    Held("Assign", _STATE[:2], {}, ()),
    Held("AssignAdd", _STATE[:2], {}, ()),
    Held("AssignSub", _STATE[:2], {}, ()),
]


class Holder(nn.Cell):
    """A cell of which each call is one of the primitive that it holds."""

    def __init__(self, primitive: Any) -> None:
        super().__init__()
        self.held = primitive

    def construct(self, *inputs: Any) -> Any:
        return self.held(*inputs)


def record_held(held: Held, folder: Path, seed: int = 0, **options: Any) -> Path:
    """Record one call, and its gradients for arriving ones that are drawn, and return the dump."""
    generator = np.random.default_rng(seed)
    inputs = [_given(each, generator) for each in held.inputs]
    for place in held.differentiable:
        inputs[place] = _as_weights(inputs[place], f"input{place}")
    weights = [each for each in _flat(inputs) if isinstance(each, mindspore.Parameter)]
    model = nn.CellList([Holder(held.make())])

    def total() -> Any:
        found = model[0](*inputs)
        first = found[0] if isinstance(found, tuple) else found
        return (first * Tensor(generator.uniform(0.5, 1.5, first.shape).astype(np.float32))).sum()

    with record(
        folder, model=model, framework="mindspore", list=["Primitive"], **{"level": "L1", **options}
    ) as session:
        if held.differentiable:
            mindspore.grad(total, None, weights)()
        else:
            model[0](*inputs)
    [written] = session.summary.folders
    return written / "dump.json"


def _given(each: Input, generator: np.random.Generator) -> Any:
    if isinstance(each, Drawn):
        return each.tensor(generator)
    if isinstance(each, tuple) and any(isinstance(item, Drawn) for item in each):
        return tuple(_given(item, generator) for item in each)
    return each


def _as_weights(tree: Any, name: str) -> Any:
    if isinstance(tree, tuple):
        return tuple(_as_weights(each, f"{name}_{place}") for place, each in enumerate(tree))
    return mindspore.Parameter(tree, name=name)


def _flat(tree: Any) -> Iterator[Any]:
    for each in tree:
        if isinstance(each, tuple):
            yield from _flat(each)
        else:
            yield each


def all_kinds() -> Iterator[str]:
    """Yield the classes of the primitives above."""
    yield from dict.fromkeys(held.kind for held in HELD)
