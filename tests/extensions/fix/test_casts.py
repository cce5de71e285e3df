"""Casts within ``fix``: the program gets the tensors that it gets without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from msprobe_hooks import fix

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
PRECISIONS = ("float32", "float64", "cpu")

METHODS = {
    torch.float16: Tensor.half,
    torch.bfloat16: Tensor.bfloat16,
    torch.float32: Tensor.float,
    torch.float64: Tensor.double,
    torch.complex64: Tensor.cfloat,
    torch.complex128: Tensor.cdouble,
}
CASTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "float": lambda x, other: METHODS[other.dtype](x),
    "to(dtype)": lambda x, other: x.to(other.dtype),
    "to(dtype=)": lambda x, other: x.to(dtype=other.dtype),
    "to(other)": lambda x, other: x.to(other),
    "to(device, dtype)": lambda x, other: x.to("cpu", other.dtype),
    "to(device)": lambda x, other: x.to("cpu"),
    "to(copy=True)": lambda x, other: x.to(other.dtype, copy=True),
    "to(memory_format=)": lambda x, other: x.to(other.dtype, memory_format=torch.contiguous_format),
    "type(dtype)": lambda x, other: x.type(other.dtype),
    "type(str)": lambda x, other: x.type(other.type()),
    "type_as": lambda x, other: x.type_as(other),
    "copy_": lambda x, other: torch.empty(x.shape, dtype=other.dtype).copy_(x),
    "clone": lambda x, other: x.clone(),
    "contiguous": lambda x, other: x.contiguous(),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "transposed": Tensor.t,
    "every second column": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, 6),
    "a number": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}


def seen(result: Tensor, *arguments: Tensor) -> list[Any]:
    """What a program can see of a tensor but for its elements."""
    memory = result.untyped_storage().data_ptr()
    form = [result.dtype, result.device, result.shape, result.stride(), result.requires_grad, result.is_leaf]
    return form + [(result is each, memory and memory == each.untyped_storage().data_ptr()) for each in arguments]


def outcome(cast: Callable[[Tensor, Tensor], Tensor], x: Tensor, other: Tensor) -> tuple[list[Any], list[Tensor]]:
    """What a cast gives, and with gradients what goes back through it."""
    result = cast(x, other)
    values = [result.detach()]
    if result.requires_grad:
        # A gradient with bits that the lower dtypes lack.
        values += torch.autograd.grad(result, x, torch.full_like(result, 1.1))
    return seen(result, x, other), values


def same(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left, right)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@settings(max_examples=80)
@given(
    st.sampled_from(list(CASTS)),
    st.sampled_from([(x, other) for group in (FLOATS, COMPLEX) for x in group for other in FLOATS + COMPLEX]),
    st.sampled_from(list(LAYOUTS)),
    st.sampled_from(PRECISIONS),
    st.sampled_from([None, torch.bfloat16, torch.float16]),
    st.booleans(),
)
def test_a_cast_gives_what_it_gives_without_fix(name, dtypes, layout, to, autocast, requires_grad):
    generator = torch.Generator().manual_seed(0)
    x, other = (torch.randn(4, 6, generator=generator, dtype=torch.float64).to(dtype) for dtype in dtypes)
    x, other = LAYOUTS[layout](x).detach().requires_grad_(requires_grad), LAYOUTS[layout](other)
    with torch.autocast("cpu", dtype=autocast) if autocast else nullcontext():
        form, values = outcome(CASTS[name], x, other)
        with fix("*", to=to):
            fixed, raised = outcome(CASTS[name], x, other)
    assert fixed == form
    assert all(map(same, raised, values))


@pytest.mark.parametrize("to", PRECISIONS)
def test_a_contiguous_copy_is_no_alias_of_its_argument(to):
    x = torch.randn(4, 6, dtype=torch.bfloat16)[:, ::2]
    with fix("*", to=to):
        copy = x.contiguous()
    copy.zero_()
    assert copy.is_contiguous()
    assert x.any()


@pytest.mark.parametrize("name", ["to(other)", "type_as"])
def test_a_cast_to_a_tensor_elsewhere_gives_a_tensor_there(name):
    x, other = torch.randn(4, dtype=torch.bfloat16), torch.empty(2, device="meta")
    with fix("*"):
        assert CASTS[name](x, other).device.type == "meta"


class LlamaNorm(nn.Module):
    """The norm of Llama: it computes in float32, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 64).bfloat16())
        self.computed_in: set[torch.dtype] = set()

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        self.computed_in |= {x.dtype, variance.dtype}
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(dtype)


@pytest.mark.parametrize("to", ["float32", "cpu"])
def test_the_norm_of_llama_computes_in_float32_as_it_does_without_fix(to):
    norm, x = LlamaNorm(), torch.randn(8, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    plain = norm(x)
    with fix("*", to=to):
        fixed = norm(x)
    assert norm.computed_in == {torch.float32}
    assert torch.equal(fixed, plain)


def test_a_loss_of_logits_that_were_cast_is_computed_in_the_dtype_of_the_cast():
    x, w = torch.randn(8, 16).bfloat16(), torch.randn(4, 16).bfloat16().requires_grad_()

    def loss() -> Tensor:
        return F.cross_entropy(F.linear(x, w).float(), torch.zeros(8, dtype=torch.int64))

    plain = loss()
    with fix("Tensor.float", "Functional.cross_entropy") as fixed:
        raised = loss()
    raised.backward()
    assert fixed.left["Tensor.float", "it only casts or moves its argument"] == 1
    assert same(raised, plain)
    assert w.grad.dtype is torch.bfloat16
