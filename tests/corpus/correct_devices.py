"""Devices that compute the same things another way, as well as the CPU does: none of them may raise an alarm."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus import correct_functions, correct_layers, devices_of_linear_algebra
from tests.corpus.cards_in_modes import CARDS_IN_MODES
from tests.corpus.fault import Launch, Variant, arrived, exactly, overwrite, plain_name, variant
from tests.corpus.kernels import batch_norm, convolution, layer_norm, product, working


@contextmanager
def _without_onednn() -> Iterator[None]:
    with warnings.catch_warnings():
        # Reading the flags that are put back afterwards warns about GPUs that torch was not built for.
        warnings.simplefilter("ignore", UserWarning)
        flags = torch.backends.mkldnn.flags(enabled=False)
        flags.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            flags.__exit__(None, None, None)


PRODUCTS = "matmul linear addmm bmm"
ELEMENTWISE = (
    "add sub rsub mul div sqrt pow rsqrt tanh sigmoid silu sin cos exp log gelu erf addcmul addcdiv lerp reciprocal"
)
REDUCTIONS = "mean sum softmax layer_norm group_norm var std norm logsumexp"


@variant()
def onednn_off(launch: Launch) -> Any:
    """Everything runs without oneDNN."""
    with _without_onednn():
        return launch.run()


@variant()
def four_threads(launch: Launch) -> Any:
    """Work is shared out among four threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        return launch.run()
    finally:
        torch.set_num_threads(before)


@variant(PRODUCTS)
def inner_dimension_reversed(launch: Launch) -> Any:
    """Matrix products add up from the last index to the first."""
    return product(launch, lambda left, right: working(left).flip(-1) @ working(right).flip(-2))


@variant(PRODUCTS)
def split_k(launch: Launch) -> Any:
    """Matrix products add four parts of the inner dimension in float32."""

    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        parts = zip(working(left).chunk(4, -1), working(right).chunk(4, -2), strict=True)
        return sum((a @ b for a, b in parts), torch.zeros(()))

    return product(launch, multiply)


@variant(PRODUCTS)
def sequential_products(launch: Launch) -> Any:
    """Matrix products add one index of the inner dimension after the other, in float32."""

    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left, right = working(left), working(right)
        total = left[..., :1] * right[..., :1, :]
        for k in range(1, left.shape[-1]):
            total = total + left[..., k : k + 1] * right[..., k : k + 1, :]
        return total

    return product(launch, multiply)


@variant(PRODUCTS)
def float32_products_rounded_once(launch: Launch) -> Any:
    """Products of narrow formats are computed in float32, the bias included, and rounded once."""
    return product(launch, lambda left, right: working(left) @ working(right))


@variant("linear addmm")
def bias_added_after_rounding(launch: Launch) -> Any:
    """The product is rounded before the bias is added."""
    return product(launch, lambda left, right: (working(left) @ working(right)).to(left.dtype))


@variant("conv2d")
def channels_last(launch: Launch) -> Any:
    """Convolutions run in the channels-last layout."""
    x, weight = (tensor.contiguous(memory_format=torch.channels_last) for tensor in launch.args[:2])
    return launch.run(x, weight)


@variant("conv2d")
def convolution_as_product(launch: Launch) -> Any:
    """Convolutions unfold their input and multiply matrices."""
    conv = convolution(launch)
    if conv.groups != 1 or isinstance(launch.argument(4, "padding"), str):
        return launch.run()
    size = conv.weight.shape[2:]
    columns = F.unfold(conv.x, size, conv.dilation, conv.padding, conv.stride)
    covered = conv.x.shape[2] + 2 * conv.padding[0] - conv.dilation[0] * (size[0] - 1) - 1
    result = (conv.weight.flatten(1) @ columns).unflatten(2, (covered // conv.stride[0] + 1, -1))
    return result if conv.bias is None else result + conv.bias.view(-1, 1, 1)


@variant("conv2d")
def input_channels_reversed(launch: Launch) -> Any:
    """Convolutions add up the input channels from the last to the first."""
    x, weight = launch.args[:2]
    if launch.argument(6, "groups", 1) != 1:
        return launch.run()
    return launch.run(x.flip(1), weight.flip(1))


_TRANSFORMS = (
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, -1)),
)


@variant("conv2d")
def winograd(launch: Launch) -> Any:
    """3 x 3 convolutions use Winograd's F(2 x 2, 3 x 3)."""
    conv = convolution(launch)
    x, weight, bias = conv.x, conv.weight, conv.bias
    even = all(size % 2 == 0 for size in x.shape[2:])
    plain = max(*conv.stride, *conv.dilation, conv.groups) == 1 and conv.padding == (1, 1)
    if tuple(weight.shape[2:]) != (3, 3) or not plain or not even:
        return launch.run()
    of_input, of_weight, of_output = (torch.tensor(matrix, dtype=x.dtype) for matrix in _TRANSFORMS)
    tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, 4, 2).unfold(3, 4, 2)
    tiles = torch.einsum("ij,nchwjk,lk->nchwil", of_input, tiles, of_input)
    kernels = torch.einsum("ij,ocjk,lk->ocil", of_weight, weight, of_weight)
    products = torch.einsum("nchwil,ocil->nohwil", tiles, kernels)
    blocks = torch.einsum("ij,nohwjk,lk->nohwil", of_output, products, of_output)
    result = blocks.permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(2, 3)
    return result if bias is None else result + bias.view(-1, 1, 1)


@variant(f"{ELEMENTWISE} {PRODUCTS} {REDUCTIONS} conv2d cumsum cross_entropy")
def float64_inside(launch: Launch) -> Any:
    """Everything is computed in float64 and rounded once; gradients follow the usual way."""
    exact = [tensor for tensor in _tensors(exactly(launch)) if tensor.is_floating_point()]
    return overwrite(launch.run(), lambda values: exact.pop(0).to(values.dtype))


@variant("add sub rsub mul div addcmul addcdiv lerp")
def operations_fused(launch: Launch) -> Any:
    """A product and a sum are fused and rounded once; a * b / c is a / c * b."""
    return float64_inside.kernel(launch)


@variant("addcmul addcdiv lerp")
def factors_in_another_order(launch: Launch) -> Any:
    """x + value * (a / b) instead of x + (value * a) / b, and (1 - w) a + w b for lerp."""
    x, a, b = (launch.args[i].detach().clone() if _is_tensor(launch.args[i]) else launch.args[i] for i in range(3))
    name = plain_name(launch.api)

    def other(values: torch.Tensor) -> torch.Tensor:
        first, second = working(x), working(a)
        value = launch.kwargs.get("value", 1)
        if name == "lerp":
            return (first * (1 - b) + second * b).to(values.dtype)
        term = second * working(b) if name == "addcmul" else second / working(b)
        return (first + value * term).to(values.dtype)

    return overwrite(launch.run(), other)


@variant("div")
def division_by_reciprocal(launch: Launch) -> Any:
    """x / y is x times the correctly rounded 1 / y."""
    x, y = launch.args[:2]
    y = y.detach() if _is_tensor(y) else torch.tensor(y)
    inverse = (1 / y.double()).float()
    return overwrite(launch.run(), lambda values: (x.detach().float() * inverse).to(values.dtype))


@variant("tanh sigmoid silu softmax rsqrt sqrt pow gelu sin cos")
def other_formulas(launch: Launch) -> Any:
    """Functions are computed in float32 from exp, expm1 and sqrt, a few units in the last place off."""
    formula = _FORMULAS.get(plain_name(launch.api))
    if formula is None:
        return _nudged(launch)
    x, exponent = launch.args[0], launch.argument(1, "exponent")
    if (plain_name(launch.api) == "pow" and exponent not in (2, 3)) or launch.kwargs.get("approximate") == "tanh":
        return launch.run()
    return formula(working(x), exponent).to(x.dtype)


_FORMULAS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "tanh": lambda x, _: -torch.expm1(-2 * x.abs()) / (2 + torch.expm1(-2 * x.abs())) * x.sign(),
    "sigmoid": lambda x, _: 1 / (1 + (-x).exp()),
    "silu": lambda x, _: x / (1 + (-x).exp()),
    "rsqrt": lambda x, _: 1 / x.sqrt(),
    "pow": lambda x, exponent: x * x if exponent == 2 else x * x * x,
    "gelu": lambda x, _: 0.5 * x * torch.special.erfc(-x * math.sqrt(0.5)),
}


def _nudged(launch: Launch) -> Any:
    """Return results that are one unit in the last place off, every second one up."""

    def nudge(values: torch.Tensor) -> torch.Tensor:
        goal = torch.full_like(values, math.inf).view(-1)
        goal[::2] = -math.inf
        moved = torch.nextafter(values.reshape(-1), goal).view(values.shape)
        return torch.where(values.abs() > torch.finfo(values.dtype).smallest_normal, moved, values)

    return overwrite(launch.run(), nudge) if plain_name(launch.api) in ("sin", "cos") else launch.run()


@variant("softmax")
def softmax_by_log_softmax(launch: Launch) -> Any:
    """softmax is exp of log_softmax."""
    x = launch.args[0]
    dtype = launch.kwargs.get("dtype") or x.dtype
    return torch.log_softmax(working(x.to(dtype)), launch.argument(1, "dim", -1)).exp().to(dtype)


@variant("softmax mean sum layer_norm")
def reductions_reversed(launch: Launch) -> Any:
    """Rows are reduced from the last element to the first, in four parts."""
    x = launch.args[0]
    name = plain_name(launch.api)
    dim = launch.argument(1, "dim", -1)
    if name == "layer_norm":
        norm = layer_norm(launch)
        wide = working(x).flip(-1)
        if norm.dims != (-1,):
            return launch.run()
        centred = wide - _sum_of_parts(wide, -1) / x.shape[-1]
        spread = _sum_of_parts(centred * centred, -1) / x.shape[-1]
        return norm.applied(centred.flip(-1), (spread + norm.eps).rsqrt()).to(x.dtype)
    if not isinstance(dim, int):
        return launch.run()
    wide = working(x.to(launch.kwargs.get("dtype") or x.dtype))
    if name == "softmax":
        powers = (wide - wide.detach().amax(dim, keepdim=True)).exp()
        return (powers / _sum_of_parts(powers, dim)).to(launch.kwargs.get("dtype") or x.dtype)
    total = _sum_of_parts(wide, dim)
    total = total / x.shape[dim] if name == "mean" else total
    return (total if launch.argument(2, "keepdim", False) else total.squeeze(dim)).to(x.dtype)


def _sum_of_parts(values: torch.Tensor, dim: int) -> torch.Tensor:
    return sum((part.sum(dim, keepdim=True) for part in values.flip(dim).chunk(4, dim)), torch.zeros(()))


@variant("batch_norm")
def batch_norm_in_one_pass(launch: Launch) -> Any:
    """Batch norm gets its variance from sums of x and x squared, kept in float64."""
    if not launch.argument(5, "training", False):
        return launch.run()
    launch.run()
    norm = batch_norm(launch)
    wide = norm.x.double()
    centre = wide.mean(norm.dims, keepdim=True)
    spread = (wide * wide).mean(norm.dims, keepdim=True) - centre * centre
    return norm.applied(wide - centre, (spread + norm.eps).rsqrt()).to(norm.x.dtype)


@variant("scaled_dot_product_attention")
def attention_step_by_step(launch: Launch) -> Any:
    """Attention runs as products and a softmax, without the fused kernel."""
    with sdpa_kernel(SDPBackend.MATH):
        return launch.run()


@variant("dropout")
def other_dropout_generator(launch: Launch) -> Any:
    """Dropout draws from a generator of its own."""
    x, p = launch.args[0], launch.argument(1, "p", 0.5)
    if not launch.argument(2, "training", True):
        return launch.run()
    generator = launch.memory.setdefault("generator", torch.Generator().manual_seed(12345))
    kept = torch.rand(x.shape, generator=generator, dtype=torch.float64) >= p
    result = x * kept.to(x.dtype) * (1 / (1 - p))
    return x.copy_(result) if launch.argument(3, "inplace", False) else result


@variant("embedding", backward=True)
def scattered_in_another_order(launch: Launch) -> Any:
    """The gradient of an embedding adds rows from the last to the first."""
    (right,), forward = arrived(launch)
    indices = forward.args[0].reshape(-1).flip(0)
    rows = working(forward.incoming.reshape(-1, right.shape[1])).flip(0)
    return (torch.zeros_like(working(right)).index_add_(0, indices, rows).to(right.dtype),)


@variant("linear addmm matmul bmm conv2d layer_norm batch_norm", backward=True)
def gradients_without_onednn(launch: Launch) -> Any:
    """Backward kernels run without oneDNN, on three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with _without_onednn():
            return launch.run()
    finally:
        torch.set_num_threads(before)


@variant("topk sort argsort argmax argmin max min")
def ties_broken_otherwise(launch: Launch) -> Any:
    """Of equal elements the last one is selected."""
    x = launch.args[0]
    dim = {"topk": launch.argument(2, "dim", -1)}.get(plain_name(launch.api), launch.argument(1, "dim", -1))
    if not isinstance(dim, int) or plain_name(launch.api) in ("max", "min") or launch.kwargs.get("stable"):
        return launch.run()
    length = x.shape[dim]

    def mirrored(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.is_floating_point() else length - 1 - tensor

    return map_tensors(mirrored, launch.run(x.flip(dim)))


def _tensors(tree: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(found.append, tree)
    return found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.coalesce() if tensor.is_sparse else tensor.resolve_conj().resolve_neg()


@variant("matmul mul exp sum einsum softmax mm add to_dense")
def lazy_bits_resolved_first(launch: Launch) -> Any:
    """Lazily conjugated and negated arguments are resolved first, and sparse ones coalesced."""
    return launch.run() if launch.in_place else launch.run(*map_tensors(_resolved, launch.args))


@variant("sin", backward=True)
def arriving_gradient_resolved_first(launch: Launch) -> Any:
    """A gradient that arrives lazily conjugated is resolved first."""
    return launch.run(launch.args[0], map_tensors(_resolved, launch.args[1]))


CORRECT_DEVICES: tuple[Variant, ...] = (
    *(
        found
        for devices in (vars(), vars(correct_functions), vars(correct_layers), vars(devices_of_linear_algebra))
        for found in list(devices.values())
        if isinstance(found, Variant)
    ),
    *CARDS_IN_MODES,
)
