"""Operators of libraries in another precision: which are raised, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from msprobe_hooks import ConfigError, fix

UNNAMED = "custom_op_namespaces does not name its library"


def rounded(x: Tensor) -> Tensor:
    """A computation that differs in the two precisions: bfloat16 loses the lower bits."""
    return (x + 256) - 256


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    """A library of two operators; ``blind`` has no fake kernel that says what it returns."""
    with torch.library._scoped_library("fixlib", "DEF") as library:
        library.define("rounded(Tensor x) -> Tensor")
        library.impl("rounded", rounded, "CompositeExplicitAutograd")
        library.define("blind(Tensor x) -> Tensor")
        library.impl("blind", rounded, "CPU")
        yield


def normal() -> Tensor:
    return torch.randn(999, generator=torch.Generator().manual_seed(0)).bfloat16()


@pytest.mark.parametrize(
    ("names", "namespaces"),
    [
        (["*"], ["fixlib"]),
        (["torch.ops.fixlib.rounded"], []),
        (["torch.ops.fixlib.rounded.0"], []),
        (["torch.ops.*"], ["otherlib", "fixlib"]),
    ],
)
def test_an_operator_of_a_library_that_is_named_is_raised(names, namespaces):
    x = normal()
    with fix(*names, custom_op_namespaces=namespaces) as fixed:
        result = torch.ops.fixlib.rounded(x)
    assert fixed.raised == {"torch.ops.fixlib.rounded": 1}
    assert torch.equal(result, rounded(x.float()).bfloat16())
    assert not torch.equal(result, torch.ops.fixlib.rounded(x))


@pytest.mark.parametrize("name", ["*", "torch.ops.*.rounded"])
def test_an_operator_of_a_library_that_is_not_named_is_counted_as_left(name):
    x = normal()
    with fix(name) as fixed:
        torch.ops.fixlib.rounded(x)
    assert fixed.left == {("torch.ops.fixlib.rounded", UNNAMED): 1}
    assert not fixed.raised


def test_an_operator_that_no_one_asked_for_is_not_counted():
    with fix("Torch.cumsum") as fixed:
        torch.ops.fixlib.rounded(normal())
    assert not fixed.left


def test_what_an_operator_without_a_fake_kernel_needs_is_said():
    with fix("*", custom_op_namespaces=["fixlib"]) as fixed:
        torch.ops.fixlib.blind(normal())
    assert "torch.library.register_fake" in str(fixed)


def test_a_library_without_a_call_is_reported():
    with fix("*", custom_op_namespaces=["fixlib", "otherlib"]) as fixed:
        torch.ops.fixlib.rounded(normal())
    assert fixed.unmet == ["torch.ops.otherlib.*"]


@pytest.mark.parametrize(
    ("namespaces", "framework", "text"),
    [
        ("fixlib", "pytorch", "allowed: a list of names"),
        ([""], "pytorch", "allowed: a list of names"),
        (["fixlib"], "mindspore", "not supported with MindSpore"),
    ],
)
def test_wrong_libraries_are_refused_before_anything_runs(namespaces, framework, text):
    with (
        pytest.raises(ConfigError, match=f"custom_op_namespaces.* {text}"),
        fix("*", custom_op_namespaces=namespaces, framework=framework),
    ):
        pass


def test_an_argument_that_is_not_raised_is_written_once_where_the_raised_call_fails() -> None:
    def accumulate(total: Tensor, part: Tensor) -> Tensor:
        total.add_(1)
        if part.dtype != torch.float16:
            raise RuntimeError("float16 alone")
        return part * 1

    total = torch.zeros(2)
    with torch.library._scoped_library("halflib", "DEF") as library:
        library.define("accumulate(Tensor(a!) total, Tensor part) -> Tensor")
        library.impl("accumulate", accumulate, "CPU")
        torch.library.register_fake("halflib::accumulate", lambda total, part: part * 1, lib=library)
        with fix("torch.ops.halflib.accumulate"):
            torch.ops.halflib.accumulate(total, torch.ones(2).half())
    assert total.tolist() == [1, 1]
