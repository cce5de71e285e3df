"""Calls of MindSpore in another precision: what they return, their gradients, and what is left alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

ms = pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402

from msprobe_hooks import ConfigError, fix, record  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def normal(*shape: int, dtype: Any = np.float16) -> Tensor:
    return Tensor(np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype))


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.asnumpy().tobytes())


def softmax(x: Tensor) -> Tensor:
    """A computation that differs in the two precisions."""
    return ops.softmax(x, -1)


def test_a_named_call_is_computed_in_float32_and_returns_its_own_dtype() -> None:
    x = normal(4, 64)
    plain, wide = softmax(x), softmax(x.astype(ms.float32)).astype(ms.float16)
    with fix("Functional.softmax", framework="mindspore") as fixed:
        found = softmax(x)
    assert found.dtype == ms.float16
    assert bits(found) == bits(wide) != bits(plain)
    assert fixed.raised == {"Functional.softmax": 1}
    assert bits(softmax(x)) == bits(plain)


FLOATS = (ms.float16, ms.bfloat16, ms.float32, ms.float64)
METHODS = {
    ms.float16: Tensor.half,
    ms.bfloat16: Tensor.bfloat16,
    ms.float32: Tensor.float,
    ms.float64: Tensor.double,
}
CASTS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "float": lambda x, dtype: METHODS[dtype](x),
    "to": lambda x, dtype: x.to(dtype),
    "astype": lambda x, dtype: x.astype(dtype),
    "astype(copy=False)": lambda x, dtype: x.astype(dtype, copy=False),
    "type": lambda x, dtype: x.type(dtype),
    "type_as": lambda x, dtype: x.type_as(Tensor([1.0], dtype)),
    "cast": lambda x, dtype: ops.cast(x, dtype),
    "contiguous": lambda x, dtype: x.contiguous(),
}


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    st.sampled_from(list(CASTS)),
    st.sampled_from(FLOATS),
    st.sampled_from(FLOATS),
    st.sampled_from(["float32", "float64", "cpu"]),
    st.booleans(),
)
def test_a_cast_gives_what_it_gives_without_fix(name: str, source: Any, dtype: Any, to: Any, is_strided: bool) -> None:
    x = normal(4, 6, dtype=np.float64).astype(source)
    x = x[:, ::2] if is_strided else x

    def seen(result: Tensor) -> list[Any]:
        memory = [tensor.untyped_storage().data_ptr() for tensor in (result, x)]
        elements = bits(result.astype(ms.float64))
        return [result.dtype, result.shape, result.stride(), result is x, memory[0] == memory[1], elements]

    plain = seen(CASTS[name](x, dtype))
    with fix("*", to=to, framework="mindspore"):
        fixed = CASTS[name](x, dtype)
    assert seen(fixed) == plain


def test_the_gradients_of_a_named_call_are_computed_in_float32_too() -> None:
    x = normal(4, 64)
    y = normal(4, 64, dtype=np.float32)

    def wide(x: Tensor) -> Tensor:
        return (softmax(x.astype(ms.float32)).astype(ms.float16).astype(ms.float32) * y).sum()

    def narrow(x: Tensor) -> Tensor:
        return (softmax(x).astype(ms.float32) * y).sum()

    with fix("Functional.softmax", framework="mindspore"):
        found = ms.grad(narrow)(x)
    assert found.dtype == ms.float16
    assert bits(found) == bits(ms.grad(wide)(x)) != bits(ms.grad(narrow)(x))


def test_one_call_is_named_by_its_number_as_in_a_record(tmp_path: Path) -> None:
    xs = [normal(4, size) for size in (16, 32, 48)]
    plain = [softmax(x) for x in xs]
    with record(tmp_path, framework="mindspore"), fix("Functional.softmax.1", "Mint.cos", framework="mindspore") as one:
        found = [softmax(x) for x in xs]
    assert [bits(each) == bits(other) for each, other in zip(found, plain, strict=True)] == [True, False, True]
    assert one.unmet == ["Mint.cos"]


def test_primitives_of_cells_are_seen_where_a_model_is_given() -> None:
    model = nn.Dense(64, 8, dtype=ms.float16)
    with fix("Primitive.matmul.MatMul", framework="mindspore", model=model) as fixed:
        model(normal(4, 64))
    assert fixed.raised == {"Primitive.matmul.MatMul": 1}


def test_a_cell_that_casts_its_calls_back_is_not_counted_as_raised() -> None:
    model = nn.Dense(64, 8).to_float(ms.float16)
    x = normal(4, 64, dtype=np.float32)
    with fix("Primitive.bias_add.*", framework="mindspore", model=model) as fixed:
        assert model(x).dtype == ms.float16
    assert fixed.left == {("Primitive.bias_add.BiasAdd", "its result stays in the lower precision"): 1}
    assert not fixed.raised


def compiled() -> Callable[[Tensor], Tensor]:
    @ms.jit
    def function(x: Tensor) -> Tensor:
        return ops.softmax(x, -1)

    return function


def test_a_compiled_function_runs_as_it_is() -> None:
    x, function = normal(4, 64), compiled()
    plain = function(x)
    with fix("*", framework="mindspore") as fixed:
        assert bits(function(x)) == bits(plain)
    assert not fixed.raised


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: mint.reshape(x, (-1,)), "it returns its argument's memory and computes nothing"),
        (lambda x: ops.dropout(x, 0.5), "it draws random numbers"),
        (lambda x: mint.eq(x, x), "it returns no floating-point tensor"),
        (lambda x: mint.abs(x.astype(ms.float32)), "no argument has a lower precision"),
        (lambda x: ops.assign_add(Parameter(x), x), "it overwrites its arguments"),
    ],
)
def test_what_cannot_be_raised_is_left_as_it_was_with_the_reason(call: Callable[[Tensor], Any], reason: str) -> None:
    with fix("Mint.*", "Functional.*", framework="mindspore") as fixed:
        call(normal(3, 4))
    assert not fixed.raised
    assert [why for _, why in fixed.left] == [reason]


def test_a_parameter_that_a_call_writes_over_is_written_once() -> None:
    parameter = Parameter(Tensor(np.array([1, 2], np.float16)))
    with fix("*", framework="mindspore"):
        ops.assign_add(parameter, Tensor(np.array([1, 1], np.float16)))
    assert parameter.asnumpy().tolist() == [2, 3]


def test_what_a_call_raises_is_what_the_program_gets() -> None:
    with fix("Mint.matmul", framework="mindspore") as fixed, pytest.raises(RuntimeError, match="MatMul"):
        mint.matmul(normal(2, 3), normal(4, 5))
    assert [why for _, why in fixed.left] == ["its result is not known in advance"]


def test_everything_is_as_it_was_afterwards() -> None:
    before = ops.softmax, mint.matmul, Tensor.sum, Tensor.__add__
    with fix("*", framework="mindspore"):
        assert ops.softmax is not before[0]
    assert (ops.softmax, mint.matmul, Tensor.sum, Tensor.__add__) == before


def test_the_cpu_is_refused_where_mindspore_computes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(4, 64)
    with fix("Functional.softmax", to="cpu", framework="mindspore") as fixed:
        softmax(x)
    assert fixed.raised
    monkeypatch.setattr(ms, "get_context", {"device_target": "Ascend"}.__getitem__)
    refused = pytest.raises(ConfigError, match="to is 'cpu'; allowed: float32 or float64, as MindSpore computes on")
    with refused, fix("Functional.softmax", to="cpu", framework="mindspore"):
        pass


def test_an_unknown_framework_is_named() -> None:
    with (
        pytest.raises(ConfigError, match="framework is 'jax'; allowed: pytorch, mindspore"),
        fix(
            "Torch.add",
            framework="jax",  # type: ignore[arg-type]
        ),
    ):
        pass


PROGRAM = """
import numpy as np, mindspore as ms
from mindspore import Tensor, ops
ms.set_context(mode=ms.PYNATIVE_MODE)
x = Tensor(np.random.default_rng(0).normal(size=(4, 64)).astype(np.float16))
for _ in range(3):
    x = ops.relu(x) * 2.0
# The sum of what a softmax gives is 1 but for its rounding.
print(float((ops.softmax(x, -1).astype(ms.float64).sum(-1) - 1).abs().max()))
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_bisection_names_the_call_that_moves_the_number(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    run = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", run, "bisect", "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert re.search(r"^Functional\.softmax\.0 moves the number", found.stdout, re.MULTILINE)
    assert "train.py, line 9" in found.stdout
