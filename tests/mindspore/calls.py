"""Calls that cover what MindSpore 2.10 computes on a CPU, as the records of a dump.

Names end in ``+`` where the CPU computes the gradient too. The values are JSON elements as msprobe writes them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.support.dumps.dump_files import Json, forward, value


def tensor(*shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "Float32") -> Json:
    statistics = {"Max": high, "Min": low, "Mean": None, "Norm": None}
    return {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(shape)} | statistics


def dtype_value(name: str) -> Json:
    return {"type": "mindspore.dtype", "value": name}


class Keywords(dict[str, Any]):
    """The arguments of a call of the tables that are given by name; they stand last."""


def record(name: str, *args: Any, output: list[Json] | None = None, number: int = 0, **kwargs: Any) -> dict[str, Json]:
    """The forward record of a call and, where the name ends in ``+``, its backward record."""
    if args and isinstance(args[-1], Keywords):
        *args, kwargs = args  # type: ignore[assignment]
    key = f"{name.removesuffix('+')}.{number}"
    named = {name: value(argument) for name, argument in kwargs.items()}
    body = forward(*value(args), output=[tensor(1)] if output is None else output, **named)
    records = {f"{key}.forward": body}
    if name.endswith("+"):
        records[f"{key}.backward"] = {"input": [tensor(1, low=-1.0, high=1.0)], "output": []}
    return records


X, Y = tensor(4, 6), tensor(4, 6)
POSITIVE, UNIT = tensor(4, 6, low=0.5, high=3.0), tensor(4, 6, low=-0.9, high=0.9)
SHARE = tensor(4, 6, low=0.1, high=0.9)
FLAGS, MORE_FLAGS = (tensor(4, 6, low=False, high=True, dtype="Bool") for _ in range(2))
WHOLE = tensor(4, 6, low=-9, high=9, dtype="Int64")
INDEX = tensor(4, 6, low=0, high=3, dtype="Int64")
IMAGE = tensor(1, 4, 6, 6)
VECTOR = tensor(6)

_UNARY = "abs+ neg+ negative+ square+ exp+ expm1+ sin+ cos+ tan+ sinh+ cosh+ tanh+ erf+ erfc+ floor+ ceil+ round+ sign+"
_UNARY += " sinc+ nan_to_num+ isfinite isinf isnan"
_COMPARISONS = "eq ne lt le gt greater less greater_equal less_equal not_equal isclose allclose"

MINT: list[tuple[Any, ...]] = [
    *[(name, X) for name in _UNARY.split()],
    *[(name, POSITIVE) for name in "sqrt+ rsqrt+ log+ log1p+ reciprocal+".split()],
    *[(name, UNIT) for name in "atanh+ arctanh+ erfinv+".split()],
    *[(name, X, Y) for name in "add+ sub+ mul+ maximum+ minimum+".split()],
    *[(name, X, POSITIVE) for name in "div+ divide+ fmod+ remainder+ floor_divide xlogy+".split()],
    *[(name, X, Y) for name in _COMPARISONS.split()],
    ("logical_not", FLAGS),
    *[(f"logical_{name}", FLAGS, MORE_FLAGS) for name in ("and", "or", "xor")],
    ("pow+", POSITIVE, Y),
    ("float_power+", POSITIVE, Y),
    ("lerp+", X, Y, 0.3),
    ("clamp+", X, -0.5, 0.5),
    ("where+", FLAGS, X, Y),
    ("polar", POSITIVE, X),
    *[(name, X, 1) for name in "sum+ mean+ prod+ max+ min+ amax+ amin+ cumprod+ cummax".split()],
    *[(name, FLAGS) for name in ("all", "any")],
    ("softmax+", X, -1),
    ("unique_consecutive", WHOLE),
    ("searchsorted", tensor(6, low=0.0, high=1.0), VECTOR),
    ("nonzero", FLAGS),
    ("matmul+", X, tensor(6, 5)),
    ("bmm+", tensor(3, 4, 6), tensor(3, 6, 5)),
    ("cdist+", X, tensor(5, 6)),
    ("cross+", tensor(4, 3), tensor(4, 3)),
    ("triu+", X),
    ("reshape+", X, [6, 4]),
    ("permute+", tensor(2, 3, 4), [2, 0, 1]),
    ("transpose+", X, 0, 1),
    ("t+", X),
    ("flatten+", tensor(2, 3, 4), 1),
    ("ravel+", X),
    ("squeeze+", tensor(4, 1, 6), 1),
    ("unsqueeze+", X, 1),
    ("broadcast_to+", VECTOR, [4, 6]),
    ("tile+", X, [2, 1]),
    ("flip+", X, [0]),
    *[(f"{name}+", [X, Y]) for name in ("cat", "concat", "hstack", "dstack")],
    ("split+", X, 3, 1),
    ("chunk+", X, 2, 1),
    ("unbind", X, 0),
    ("narrow+", X, 1, 1, 3),
    ("select", X, 0, 1),
    ("gather+", X, 0, INDEX),
    ("masked_select+", X, FLAGS),
    ("diff+", X),
    ("meshgrid", tensor(3), tensor(5)),
    ("empty_like", X),
    ("zeros", [2, 3]),
    ("ones", [2, 3]),
    ("eye", 3, 4),
    ("bitwise_and", WHOLE, INDEX),
    ("gcd", WHOLE, INDEX),
]

FUNCTIONAL: list[tuple[Any, ...]] = [
    *[(name, X) for name in "sigmoid+ silu+ relu+ tanh+ hardshrink+ softshrink+ hardsigmoid+ hardswish+ glu+".split()],
    ("softplus", X),
    ("softmax+", X, -1),
    ("linear+", X, tensor(5, 6), tensor(5)),
    ("adaptive_max_pool2d+", IMAGE, [3, 3]),
    ("group_norm+", IMAGE, 2, tensor(4), tensor(4)),
    ("dropout+", X, 0.5, False),
    ("smooth_l1_loss+", X, Y),
    ("binary_cross_entropy+", SHARE, tensor(4, 6, low=0.0, high=1.0)),
    # The shape of msprobe's dump: MindSpore's gradient of the mean divides by the size of the process's first call.
    ("binary_cross_entropy_with_logits+", tensor(3, 4), tensor(3, 4, low=0.1, high=0.9)),
    ("interpolate+", IMAGE, [12, 12]),
    ("grid_sample+", IMAGE, tensor(1, 3, 3, 2, low=-1.0, high=1.0)),
    ("pixel_shuffle+", IMAGE, 2),
    ("prelu+", X, tensor(1, low=0.25, high=0.25)),
]

TENSOR: list[tuple[Any, ...]] = [
    *[(f"__{name}__+", X, POSITIVE) for name in "add sub mul truediv mod radd".split()],
    *[(f"__{name}__", X, POSITIVE) for name in "floordiv eq lt le gt ge ne".split()],
    ("__pow__+", POSITIVE, 2.0),
    ("__matmul__+", X, tensor(6, 5)),
    ("__neg__+", X),
    ("__getitem__+", X, [1, 2]),
    ("__rsub__+", X, 1.0),
    ("__rtruediv__+", POSITIVE, 1.0),
    ("__invert__", FLAGS),
    ("__and__", FLAGS, MORE_FLAGS),
    ("__iadd__", X, Y),
    ("add+", X, Y),
    ("sub+", X, Y),
    ("all", FLAGS),
    ("any", FLAGS),
    ("allclose", X, Y),
    *[(name, X) for name in "bool ceil cos+ sin+ square+ round trunc isnan flatten+ contiguous+".split()],
    *[(name, POSITIVE) for name in "byte int long log+ log2+ sqrt+ rsqrt+".split()],
    *[(name, X) for name in "float+ half+ is_contiguous numel numpy size tolist sum+ mean+ max+ min+ t+".split()],
    ("clamp+", X, -0.5, 0.5),
    ("copy_", X, Y),
    ("add_", X, Y),
    ("fill_", X, 1.5),
    ("zero_", X),
    ("floor_", X),
    ("clamp_", X, -0.5, 0.5),
    ("clone+", X),
    ("cumprod+", X, 1),
    ("expand+", VECTOR, [4, 6]),
    ("expand_as+", VECTOR, X),
    ("item", tensor()),
    ("masked_fill+", X, FLAGS, 0.0),
    ("repeat", X, [2, 1]),
    ("repeat_interleave+", X, 2, 1),
    ("reshape+", X, [6, 4]),
    ("view+", X, [6, 4]),
    ("view_as+", X, tensor(6, 4)),
    ("select", X, 0, 1),
    ("split+", X, 3, 1),
    ("chunk+", X, 2, 1),
    ("swapaxes+", X, 0, 1),
    ("transpose+", X, 0, 1),
    ("permute+", tensor(2, 3, 4), 2, 0, 1),
    ("to+", X, dtype_value("Float16")),
    ("type", X, dtype_value("Float16")),
    ("type_as+", X, tensor(2, dtype="Float16")),
    ("topk+", X, 3),
    ("unsqueeze+", X, 1),
    ("addmm_", tensor(4, 5), X, tensor(6, 5)),
    ("gather+", X, 1, INDEX),
    ("argmax", X),
    ("tril+", X),
    ("norm+", X),
    ("pow+", POSITIVE, 2.0),
    ("softmax+", X, -1),
    ("matmul+", X, tensor(6, 5)),
    # By position as torch, by name as numpy: the values without their places.
    *[(name, X, 1) for name in ("max+", "min+")],
    *[(name, X, Keywords(axis=1, keepdims=True)) for name in ("max+", "min+")],
    ("max", X, Keywords(axis=1, return_indices=True)),
    ("max", X, None, True),
    ("amax+", X, Keywords(axis=[0, 1])),
    ("astype+", X, dtype_value("Float16")),
    ("astype", X, "int32"),
]

OPS: list[tuple[Any, ...]] = [
    ("reshape+", X, [6, 4]),
    ("conv2d+", IMAGE, tensor(3, 4, 3, 3)),
    ("max_pool2d+", IMAGE, 2),
    ("avg_pool2d+", IMAGE, 2, 2),
    ("batch_norm+", IMAGE, tensor(4), tensor(4, low=0.5, high=2.0), tensor(4), tensor(4)),
    ("norm+", X),
    ("cumsum+", X, 1),
    ("gelu+", X),
    ("cross_entropy+", X, tensor(4, low=0, high=5, dtype="Int32")),
    ("log_softmax+", X),
    ("softmax+", X),
    ("argmax", X, 1),
    ("var+", X, 1),
    ("std+", X, 1),
    ("sort+", X),
    ("mm+", X, tensor(6, 5)),
    ("matmul+", X, tensor(6, 5)),
    ("stack+", [X, Y], 1),
    ("concat+", [X, Y], 1),
    ("gather+", X, tensor(3, low=0, high=3, dtype="Int64"), 0),
    ("gather_elements+", X, 0, INDEX),
    ("mse_loss+", X, Y),
    ("l1_loss+", X, Y),
    ("smooth_l1_loss+", X, Y),
    ("binary_cross_entropy+", SHARE, tensor(4, 6, low=0.0, high=1.0)),
    ("leaky_relu+", X),
    ("interpolate+", IMAGE, [12, 12], None, "bilinear", False),
    ("dense+", X, tensor(5, 6), tensor(5)),
    ("expand_dims+", X, 1),
    ("transpose+", X, [1, 0]),
    ("cast+", X, dtype_value("Float16")),
    ("one_hot", tensor(4, low=0, high=5, dtype="Int64"), 6, 1.0, 0.0),
    ("max", X, 1),
    ("min", X, 1),
    ("mean+", X, 1),
    ("sum+", X, 1),
    ("select+", FLAGS, X, Y),
    ("equal", X, Y),
    ("flatten+", tensor(2, 3, 4)),
    ("meshgrid", tensor(3), tensor(5)),
    ("addn+", [X, Y]),
    ("bias_add+", IMAGE, tensor(4)),
    ("median", X),
    ("rms_norm+", X, VECTOR),
    ("clip_by_value+", X, -0.5, 0.5),
    ("repeat_interleave+", X, 2, 0),
    ("full", [2, 3], 1.5),
    ("arange", 1, 7),
    *[(name, [2, 3], dtype_value("Float32")) for name in ("ones", "zeros")],
    *[(name, 4) for name in ("ones", "zeros")],
    ("zeros", Keywords(size=[2], dtype=dtype_value("Int64"))),
    ("fill", dtype_value("Float16"), [2, 3], 1.5),
    ("eye", 3, 4, dtype_value("Float32")),
    ("shape", X),
    ("size", X),
]

PRIMITIVES: list[tuple[Any, ...]] = [
    ("dense.Dense+", X, tensor(5, 6), tensor(5)),
    *[(f"f.{name}+", X) for name in "Abs Cos Erf Exp Neg ReLU Sigmoid Sin Square Tanh".split()],
    *[(f"f.{name}+", X, POSITIVE) for name in "Add Sub Mul Div Maximum Minimum".split()],
]


# Where the width of an index matters: outside of mint MindSpore's have 32 bits.
_PLACES = tensor(1, low=0, high=3, dtype="Int32")
OUTPUTS = {"Tensor.topk+": [tensor(1), _PLACES], "Functional.sort+": [tensor(1), _PLACES]}


def every_call() -> dict[str, Json]:
    """All records, by name."""
    types = {"Mint": MINT, "MintFunctional": FUNCTIONAL, "Tensor": TENSOR, "Functional": OPS, "Primitive": PRIMITIVES}
    numbers: Counter[str] = Counter()
    found: dict[str, Json] = {}
    for kind, table in types.items():
        for name, *args in table:
            called = f"{kind}.{name}"
            api = called.removesuffix("+")
            found |= record(called, *args, output=OUTPUTS.get(called), number=numbers[api])
            numbers[api] += 1
    return found
