"""Rows of operations that compute element by element, cast, copy, view, or make a tensor of sizes and numbers."""

from __future__ import annotations

from pytest_msprobe.engine.replay.inputs.constraints import values
from pytest_msprobe.engine.replay.inputs.points import Argument, at, powers
from pytest_msprobe.engine.replay.ops import open_elements
from pytest_msprobe.engine.replay.ops.cuts import Blocks, alike, elementwise
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows

_BLOCKS = Blocks(elementwise, "input other third")
# Relu and silu write where their second argument, ``inplace``, asks for it.
_IN_PLACE = Blocks(elementwise, "input other", in_place=True)
_DIVISOR, _DIVIDEND = values.divisor(1, "other"), values.divisor(0)

_ZEROS, _EQUAL = at(0.0, -0.0), at(Argument(1, "other"))
_MIN, _MAX = Argument(1, "min"), Argument(2, "max")
_LAMBDA, _MINUS_LAMBDA = Argument(1, "lambd", 0.5), Argument(1, "lambd", 0.5, -1)
_HARDTANH = at(Argument(1, "min_val", -1.0), Argument(2, "max_val", 1.0))

ROWS: Rows = (
    ("exp gelu mul neg reciprocal rsqrt sqrt square where __mul__ __neg__ __rmul__", OpInfo(blocks=_BLOCKS)),
    ("abs", OpInfo(blocks=_BLOCKS, points=_ZEROS)),
    ("maximum minimum", OpInfo(blocks=_BLOCKS, points=_EQUAL)),
    ("pow __pow__", OpInfo(blocks=_BLOCKS, points=powers)),
    ("sigmoid tanh", OpInfo(blocks=_BLOCKS, found_in="torch.nn.functional")),
    # At its edges the gradient of hardswish is one or the other by the version of torch.
    ("hardswish", OpInfo(found_in="torch.nn.functional")),
    ("hardsigmoid", OpInfo(points=at(-3.0, 3.0), found_in="torch.nn.functional")),
    ("hardtanh_", OpInfo(points=_HARDTANH, found_in="torch.nn.functional")),
    ("elu_ leaky_relu_", OpInfo(points=_ZEROS, found_in="torch.nn.functional")),
    (
        "count_nonzero elu heaviside leaky_relu logical_not prelu selu selu_ sgn sgn_ sign_ signbit sinc xlogy",
        OpInfo(points=_ZEROS),
    ),
    ("hardtanh", OpInfo(points=_HARDTANH)),
    ("relu6", OpInfo(points=at(0.0, -0.0, 6.0))),
    ("threshold threshold_", OpInfo(points=at(Argument(1, "threshold")))),
    ("hardshrink softshrink", OpInfo(points=at(_LAMBDA, _MINUS_LAMBDA))),
    ("clamp clamp_ clip clip_", OpInfo(points=at(_MIN, _MAX))),
    ("clamp_min clamp_min_", OpInfo(points=at(_MIN))),
    ("clamp_max clamp_max_", OpInfo(points=at(Argument(1, "max")))),
    ("hardsigmoid_backward", OpInfo(points=at(-3.0, 3.0, of=1))),
    ("hardtanh_backward", OpInfo(points=at(Argument(2, "min_val"), Argument(3, "max_val"), of=1))),
    ("leaky_relu_backward", OpInfo(points=at(0.0, -0.0, of=1))),
    ("threshold_backward", OpInfo(points=at(Argument(2, "threshold"), of=1))),
    (
        """eq fmax fmin ge greater greater_equal gt le less less_equal lt ne not_equal
        __eq__ __ge__ __gt__ __le__ __lt__ __ne__""",
        OpInfo(points=_EQUAL),
    ),
    ("copysign copysign_", OpInfo(points=at(0.0, -0.0, of=1, name="other"))),
    ("round round_", OpInfo(points=at(0.5, -0.5, 1.5, -1.5, 2.5, -2.5))),
    ("ceil ceil_ fix floor floor_ frac trunc trunc_", OpInfo(points=at(1.0, -1.0, 2.0, -2.0))),
    ("add sub __add__ __sub__", OpInfo(blocks=_BLOCKS, terms="addition", step="addition")),
    ("__radd__ __rsub__", OpInfo(blocks=_BLOCKS, terms="addition")),
    ("log", OpInfo(blocks=_BLOCKS, terms="logarithm")),
    ("add_ exp_ log_ mul_ neg_ reciprocal_ rsqrt_ sigmoid_ silu sqrt_ square_ sub_ tanh_", OpInfo(blocks=_IN_PLACE)),
    ("abs_ relu relu_", OpInfo(blocks=_IN_PLACE, points=_ZEROS)),
    ("pow_", OpInfo(blocks=_IN_PLACE, points=powers)),
    ("__iadd__ __isub__", OpInfo(in_place=True, blocks=_IN_PLACE, terms="addition", step="addition")),
    ("__imul__", OpInfo(in_place=True, blocks=_IN_PLACE)),
    ("__ipow__ __iand__ __ior__ __ixor__", OpInfo(in_place=True)),
    # Sums, and the steps of optimizers that are made of them.
    ("rsub subtract", OpInfo(terms="addition")),
    ("lerp", OpInfo(terms="interpolation")),
    ("addcmul", OpInfo(terms="added_product")),
    ("addcdiv", OpInfo(terms="added_quotient", step="added_quotient")),
    ("log2 log10", OpInfo(terms="logarithm")),
    ("sign", OpInfo(points=_ZEROS, step="sign")),
    ("_fused_adam_ _fused_adamw_", OpInfo(step="adam")),
    # A division of whole numbers by none that is zero.
    (
        "div __truediv__",
        OpInfo(constraint=_DIVISOR, leaves_open=open_elements.DIVIDED, blocks=_BLOCKS, step="quotient"),
    ),
    ("true_divide", OpInfo(constraint=_DIVISOR, leaves_open=open_elements.DIVIDED, blocks=_BLOCKS)),
    ("div_", OpInfo(constraint=_DIVISOR, leaves_open=open_elements.DIVIDED, blocks=_IN_PLACE)),
    (
        "divide divide_ true_divide_ floor_divide floor_divide_ __div__ __floordiv__",
        OpInfo(constraint=_DIVISOR, leaves_open=open_elements.DIVIDED),
    ),
    ("remainder remainder_ fmod fmod_ __mod__", OpInfo(constraint=_DIVISOR)),
    ("__rtruediv__", OpInfo(constraint=_DIVIDEND, leaves_open=open_elements.DIVIDED_BY_FIRST, blocks=_BLOCKS)),
    ("__rdiv__ __rfloordiv__", OpInfo(constraint=_DIVIDEND, leaves_open=open_elements.DIVIDED_BY_FIRST)),
    ("__rmod__", OpInfo(constraint=_DIVIDEND)),
    (
        "__itruediv__",
        OpInfo(in_place=True, constraint=values.divisor(1), leaves_open=open_elements.DIVIDED, blocks=_IN_PLACE),
    ),
    (
        "__idiv__ __ifloordiv__",
        OpInfo(in_place=True, constraint=values.divisor(1), leaves_open=open_elements.DIVIDED),
    ),
    ("__imod__", OpInfo(in_place=True, constraint=values.divisor(1))),
    # Shifts that are negative or as wide as the number.
    (
        "bitwise_left_shift bitwise_left_shift_ bitwise_right_shift bitwise_right_shift_ __lshift__ __rshift__",
        OpInfo(leaves_open=open_elements.SHIFTED),
    ),
    ("__rlshift__ __rrshift__", OpInfo(leaves_open=open_elements.SHIFTED_BY_FIRST)),
    ("__ilshift__ __irshift__", OpInfo(in_place=True, leaves_open=open_elements.SHIFTED)),
    # Numbers that the result's dtype does not hold.
    ("byte char short int long _to_copy", OpInfo(leaves_open=open_elements.CAST)),
    ("tensor as_tensor asarray", OpInfo(leaves_open=open_elements.CAST, found_in="torch")),
    (
        "to",
        OpInfo(leaves_open=open_elements.CAST, blocks=Blocks(alike, "input dtype non_blocking copy memory_format")),
    ),
    ("type", OpInfo(leaves_open=open_elements.CAST, blocks=Blocks(alike, "input dtype non_blocking"))),
    ("type_as", OpInfo(leaves_open=open_elements.CAST, blocks=Blocks(alike, "input other"))),
    ("bfloat16 clone contiguous double float half", OpInfo(blocks=Blocks(alike, "input memory_format"))),
    ("copy_ copy", OpInfo(leaves_open=open_elements.COPIED)),
    ("new_tensor", OpInfo(leaves_open=open_elements.COPIED, found_in="torch.Tensor")),
    # Sizes given one by one.
    ("expand reshape view view_copy", OpInfo(bare_sizes=True)),
    ("new_full new_ones new_zeros", OpInfo(bare_sizes=True, found_in="torch.Tensor")),
    # Made of numbers, or of other tensors.
    (
        """arange bartlett_window blackman_window complex eye full hamming_window hann_window kaiser_window linspace
        logspace ones polar range scalar_tensor tril_indices triu_indices zeros""",
        OpInfo(found_in="torch"),
    ),
    ("fftfreq rfftfreq", OpInfo(found_in="torch.fft")),
    # Views of a tensor, and its place in memory.
    ("H T imag mH mT real shape", OpInfo(found_in="property")),
    ("_conj new unflatten", OpInfo(found_in="torch.Tensor")),
    ("as_strided as_strided_ as_strided_copy as_strided_scatter is_contiguous storage_offset", OpInfo(storage="read")),
    ("stride", OpInfo(storage="read", found_in="torch.Tensor")),
    ("set_ resize_ resize_as_ resize resize_as", OpInfo(storage="replaced")),
    # The next float16 after x, the largest float16.
    ("nextafter nan_to_num nan_to_num_ DType", OpInfo(of_dtype=True)),
)
