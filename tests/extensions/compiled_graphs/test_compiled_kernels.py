"""Level compiled: the kernels of a compiled step, recorded with what their operators compute uncompiled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx

from msprobe_hooks import record
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.compiled_graphs.generated_code import HOOK, GeneratedCode, generated_code, require_torch
from msprobe_hooks.extensions.compiled_graphs.graph_operators import (
    DrawsRandomNumbersError,
    compiled_operators,
    fused,
    golden_value,
    source_lines,
    uncompiled,
)
from tests.support.requirements import require
from tests.support.runs import Checked, check

aten = torch.ops.aten

# A step of more than a hundred kernel calls that are few different kernels, one of which is called once.
_STEP = """
import torch
from torch._inductor.async_compile import AsyncCompile
from torch.nn import functional as F
from msprobe_hooks import record

generate = AsyncCompile.cpp_pybinding


def planted(self, types, source):
    # What one kernel computes is wrong by 1 %.
    wrong = source.replace(".tanh()", ".tanh() * at::vec::Vectorized<float>(1.01f)")
    return generate(self, types, wrong)


AsyncCompile.cpp_pybinding = planted
torch._inductor.config.compile_threads = 1
torch.manual_seed(0)
weights = [(torch.randn(8, 8) * 0.5).requires_grad_() for _ in range(22)]


@torch.compile
def step(x):
    for number, weight in enumerate(weights):
        x = F.gelu(x @ weight)
        if number == 12:
            x = torch.tanh(x @ weights[0]) * 0.5
    return x.square().mean()


with record("compiled", level="compiled", golden_path="golden") as session:
    step(torch.randn(4, 8)).backward()
print(session.summary)
"""


def placeholders(graph: fx.Graph, *names: str) -> list[fx.Node]:
    """Return arguments of a graph."""
    return [graph.placeholder(name) for name in names]


def read(*lines: str, kernels: str = "") -> GeneratedCode:
    """Return what is read of a graph's code with these lines in its body."""
    body = "\n".join(f"        {line}" for line in lines)
    return generated_code(kernels + _GRAPH + body + "\nrunner = Runner([])\ncall = runner.call\n")


_GRAPH = """
class Runner:
    def __init__(self, partitions):
        pass

    def call(self, args):
        arg0_1, arg1_1 = args
"""
_CPP = """
fused = async_compile.cpp_pybinding(['float*', 'const float*', 'float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0,
                       float* out_ptr0) { }
''')
"""
_TRITON = """
fused = async_compile.triton('fused', '''
@triton.jit
def fused(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
"""


def test_a_cpp_kernel_writes_what_is_not_const() -> None:
    (call,) = read("fused(buf1, arg0_1, buf2)", kernels=_CPP).calls
    assert call.read == {0: "in_out_ptr0", 1: "in_ptr0"}
    assert [(one.place, one.variable) for one in call.written] == [(0, "buf1"), (2, "buf2")]


def test_a_triton_kernel_writes_what_its_parameters_are_named_after() -> None:
    (call,) = read("fused.run(arg0_1, buf0, 64, stream=stream0)", kernels=_TRITON).calls
    assert call.kernel == "fused"
    assert call.read == {0: "in_ptr0", 2: "xnumel"}
    assert [(one.place, one.variable) for one in call.written] == [(1, "buf0")]


def test_memory_that_nothing_was_written_to_is_not_read() -> None:
    lines = ("buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)", "buf1 = buf0; del buf0")
    (call,) = read(*lines, "fused(buf1, arg0_1, buf2)", kernels=_CPP).calls
    assert call.read == {1: "in_ptr0"}


def test_a_library_kernel_writes_its_result_or_out() -> None:
    first, second = read(
        "extern_kernels.mm(arg0_1, arg1_1, out=buf0)",
        "buf1 = torch.ops.aten.topk.default(buf0, 2)",
        "buf2 = buf1[0]",
        "buf3 = buf1[1]",
    ).calls
    assert [(one.place, one.variable) for one in first.written] == [("out", "buf0")]
    assert [(one.place, one.variable, one.item) for one in second.written] == [(None, "buf2", 0), (None, "buf3", 1)]


def test_a_buffer_has_its_value_only_after_the_last_call_that_writes_it() -> None:
    first, second = read("extern_kernels.mm(arg0_1, arg1_1, out=buf0)", "aten.index_put_(buf0, [arg1_1], arg0_1)").calls
    assert [one.variable for one in first.written] == [""]
    assert [one.variable for one in second.written] == ["buf0"]


def test_each_kernel_call_is_made_by_the_hook() -> None:
    code = read("extern_kernels.mm(arg0_1, arg1_1, out=buf0)", "return (buf0, arg0_1, )")
    made = []

    def hook(number: int, kernel: str, *args: object, **kwargs: object) -> None:
        made.append((number, kernel, args, kwargs))

    class Kernels:
        mm = "mm"

    names: dict[str, Any] = {HOOK: hook, "extern_kernels": Kernels, "buf0": "out"}
    exec(compile(code.tree, "graph", "exec"), names)
    assert names["call"](["a", "b"]) == ("out", "a")
    assert made == [(0, "mm", ("a", "b"), {"out": "out"})]
    assert code.results == ("buf0", "arg0_1")


def test_golden_values_are_computed_in_float64() -> None:
    graph = fx.Graph()
    (x,) = placeholders(graph, "x")
    total = graph.call_function(aten.sum.default, (x,))
    values = torch.tensor([1e8, 1.0, -1e8])
    assert uncompiled(total, {x: values}).item() == 1.0
    assert golden_value(total, {x: values}, torch.tensor(1.0)).dtype is torch.float32


def test_a_sum_that_cancels_may_be_as_wrong_as_that_of_pytorch() -> None:
    graph = fx.Graph()
    (x,) = placeholders(graph, "x")
    total = graph.call_function(aten.sum.default, (x,))
    values = torch.tensor([1e8, 1.0, -1e8, 3.0])
    rounded = values.sum()
    assert rounded != 4.0
    assert golden_value(total, {x: values}, rounded) == rounded
    assert golden_value(total, {x: values}, torch.tensor(-1e6)) == 4.0


def test_what_hangs_on_random_numbers_has_no_golden_value() -> None:
    graph = fx.Graph()
    (x,) = placeholders(graph, "x")
    drawn = graph.call_function(aten.rand_like.default, (x,))
    twice = graph.call_function(aten.mul.Tensor, (drawn, 2))
    with pytest.raises(DrawsRandomNumbersError):
        uncompiled(twice, {x: torch.ones(3)})
    assert uncompiled(twice, {drawn: torch.ones(3)}).tolist() == [2.0, 2.0, 2.0]


def test_the_lines_of_a_kernel_are_those_of_the_operators_between_known_values() -> None:
    graph = fx.Graph()
    (x,) = placeholders(graph, "x")
    first = graph.call_function(aten.exp.default, (x,))
    second = graph.call_function(aten.neg.default, (first,))
    third = graph.call_function(aten.relu.default, (second,))
    for node, line in ((first, 1), (second, 2), (third, 3)):
        node.meta["stack_trace"] = f'  File "model.py", line {line}, in forward\n    step {line}'
    parts = fused([third], {x, first})
    assert parts == [second, third]
    assert source_lines(parts) == (
        "File model.py, line 2, in forward, \n step 2",
        "File model.py, line 3, in forward, \n step 3",
    )


def buffer(*size: int) -> SimpleNamespace:
    """Return a buffer of a graph, with the values of no operator."""
    return SimpleNamespace(layout=SimpleNamespace(size=size, dtype=torch.float32))


@pytest.mark.parametrize(("rows", "is_found"), [(4, True), (2, False)])
def test_a_copy_for_a_library_kernel_has_the_value_of_the_operand(rows: int, is_found: bool) -> None:
    graph = fx.Graph()
    (x,) = placeholders(graph, "x")
    doubled = graph.call_function(aten.mul.Tensor, (x, 2))
    doubled.meta["val"] = torch.empty(4, 4)
    product = graph.call_function(aten.mm.default, (doubled, x))
    graph.output((product,))
    lines = ("fused(buf0, arg0_1, buf1)", "extern_kernels.mm(buf1, arg0_1, out=buf2)", "return (buf2, )")
    code = read(*lines, kernels=_CPP)
    lowering = SimpleNamespace(
        module=SimpleNamespace(graph=graph), name_to_buffer={"buf1": buffer(rows, 4), "buf2": buffer(4, 4)}
    )
    operators = compiled_operators(lowering, code)
    assert operators.node_of("buf2") is product
    assert operators.node_of("buf1") is (doubled if is_found else None)


def test_an_older_torch_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"a recording of compiled code needs torch >= 2\.10, this is 2\.9\.1"):
        require_torch("2.9.1+cpu")


def test_golden_values_are_of_level_compiled_only(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="golden_path"),
        record(tmp_path / "a", level="L1", golden_path=tmp_path / "b"),
    ):
        pass


def compare_compiled(pytester: pytest.Pytester, program: str) -> tuple[Checked, list[str]]:
    """Run a program that records compiled kernels and compare them; return the names that failed as well."""
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    recorded = pytester.runpython(pytester.makepyfile(step=program))
    assert recorded.ret == 0, recorded.stderr.str()
    checked = check(pytester, "--msprobe-compare=compiled", "--msprobe-golden=golden", apart=True)
    return checked, [name for name, case in checked.cases.items() if case.outcome == "failed"]


@pytest.mark.slow
def test_a_wrong_fusion_among_a_hundred_kernels_is_named_with_its_line(pytester: pytest.Pytester) -> None:
    checked, failed = compare_compiled(pytester, _STEP)
    assert len(checked.cases) > 100
    assert len(failed) == 1
    assert "tanh" in failed[0]
    checked.result.stdout.fnmatch_lines(["first forward culprit: Inductor.graph0_forward.*tanh*", "*x = torch.tanh(x*"])


# One kernel of the backward pass writes the gradient that a convolution of the library reads, into memory of its own.
_CONVOLUTION = """
import torch
from torch._inductor.async_compile import AsyncCompile
from torch.nn import functional as F
from msprobe_hooks import record

generate = AsyncCompile.cpp_pybinding


def planted(self, types, source):
    # The constant of a hardswish is wrong.
    return generate(self, types, source.replace("static_cast<float>(3.0)", "static_cast<float>(3.01)"))


AsyncCompile.cpp_pybinding = planted
torch._inductor.config.compile_threads = 1
torch.manual_seed(0)
convolution, norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GroupNorm(2, 8)


@torch.compile
def step(x):
    return F.hardswish(norm(convolution(x))).mean((-1, -2)).square().mean()


with record("compiled", level="compiled", golden_path="golden"):
    step(torch.randn(2, 3, 8, 8)).backward()
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_library_kernel_that_reads_wrong_values_is_not_called_wrong(pytester: pytest.Pytester) -> None:
    checked, failed = compare_compiled(pytester, _CONVOLUTION)
    assert any("convolution_backward_default" in name for name in checked.cases)
    assert len(failed) == 2
    assert all("hardswish" in name for name in failed)


_OPTIMIZER = """
import torch
from msprobe_hooks import record

torch._inductor.config.compile_threads = 1
torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
layer(torch.randn(3, 4)).sum().backward()
with record("compiled", level="compiled", golden_path="golden"):
    torch.compile(optimizer.step)()
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_compiled_step_of_an_optimizer_differs_in_nothing(pytester: pytest.Pytester) -> None:
    checked, failed = compare_compiled(pytester, _OPTIMIZER)
    assert failed == []
    assert "warned" not in checked.result.stdout.str()
    checked.result.stdout.fnmatch_lines(["*no compared call differs*"])


_MANY_SHAPES = """
import torch
import torch._dynamo
from msprobe_hooks import record

torch._inductor.config.compile_threads = 1
torch._dynamo.config.recompile_limit = 1


@torch.compile(dynamic=False)
def double(x):
    return x * 2


with record("compiled", level="compiled") as session:
    double(torch.ones(3))
    double(torch.ones(4))
print(session.summary)
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_code_that_torch_gave_up_compiling_is_mentioned(pytester: pytest.Pytester) -> None:
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    recorded = pytester.runpython(pytester.makepyfile(step=_MANY_SHAPES))
    assert recorded.ret == 0, recorded.stderr.str()
    recorded.stdout.fnmatch_lines(["recorded 1 call *no longer compiles, as of recompile_limit, is not recorded (1)*"])
