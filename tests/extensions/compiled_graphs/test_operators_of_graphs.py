"""Level aten inside of compiled code: operators as the program calls them, whatever a compiler makes of them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import getitem
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef

from msprobe_hooks.extensions.compiled_graphs.traced_operators import (
    GraphOperators,
    Left,
    OperatorTrace,
    OperatorValues,
    TracedOperator,
)
from tests.support.requirements import require
from tests.support.runs import Checked, check

aten = torch.ops.aten


@contextmanager
def traced(
    function: Callable[..., Any], *args: Tensor, decompositions: dict[Any, Any] | None = None
) -> Iterator[tuple[GraphOperators, OperatorValues]]:
    """Yield the operators of a function and their values for the arguments."""
    trace = OperatorTrace()
    trace.begin()
    try:
        graph = make_fx(function, decomposition_table=decompositions or {}, tracing_mode="fake")(*args).graph
    finally:
        trace.end()
    operators = GraphOperators(trace, graph, is_backward=False)
    known = dict(zip((node for node in graph.nodes if node.op == "placeholder"), args, strict=True))
    yield operators, OperatorValues(operators, known, {})


def names(operators: GraphOperators) -> list[str]:
    """Return the names of operators in their order."""
    return [operator.name for operator in operators.operators]


def both(values: OperatorValues, operator: TracedOperator) -> tuple[Tensor, Tensor]:
    """Return the first result as compiled code has it, and without the compiler."""
    (*_, compiled), (*_, golden) = values.both_sides(operator)
    return compiled[0], golden[0]


def wrong_silu(x: Tensor) -> Tensor:
    """Return a silu that is wrong by the 2 % in its sigmoid's argument."""
    return x * torch.sigmoid(x * 1.02)


def test_an_operator_is_noted_as_the_program_calls_it_and_not_as_it_is_decomposed() -> None:
    table = {aten.silu.default: wrong_silu}
    with traced(lambda x: aten.neg(aten.silu(x)), torch.randn(4), decompositions=table) as (operators, _):
        assert names(operators) == ["Aten.silu.default", "Aten.neg.default"]
        assert [str(node.target) for node in operators.nodes.values() if node.op == "call_function"] == [
            "aten.mul.Tensor",
            "aten.neg.default",
        ]


def test_a_wrong_decomposition_differs_from_its_operator() -> None:
    x = torch.linspace(-3, 3, 7)
    with traced(lambda x: aten.silu(x), x, decompositions={aten.silu.default: wrong_silu}) as (operators, values):
        compiled, golden = both(values, operators.operators[0])
    expected = (x.double() / (1 + torch.exp(-x.double()))).float()
    assert torch.equal(golden, expected)
    assert (compiled - golden).abs().max() > 1e-3


def test_what_follows_a_wrong_decomposition_is_given_other_inputs() -> None:
    table = {aten.silu.default: wrong_silu}
    with traced(lambda x: aten.neg(aten.silu(x)), torch.ones(4), decompositions=table) as (operators, values):
        (compiled, _, _), (golden, _, _) = values.both_sides(operators.operators[1])
    assert not torch.equal(compiled[0], golden[0])


def test_a_right_decomposition_has_the_values_of_its_operator() -> None:
    table = {aten.silu.default: lambda x: x / (1 + torch.exp(-x))}
    x = torch.randn(64)
    with traced(lambda x: aten.silu(x), x, decompositions=table) as (operators, values):
        compiled, golden = both(values, operators.operators[0])
    torch.testing.assert_close(compiled, golden, rtol=2e-6, atol=0)


def test_what_a_kernel_wrote_is_what_the_operators_after_it_are_computed_from() -> None:
    trace = OperatorTrace()
    trace.begin()
    graph = make_fx(lambda x: aten.neg(aten.exp(x)), tracing_mode="fake")(torch.ones(2)).graph
    trace.end()
    operators = GraphOperators(trace, graph, is_backward=False)
    x, exponential, *_ = graph.nodes
    values = OperatorValues(operators, {x: torch.ones(2), exponential: torch.full((2,), 5.0)}, {})
    compiled, golden = both(values, operators.operators[0])
    assert compiled.tolist() == [5.0, 5.0]
    torch.testing.assert_close(golden, torch.full((2,), 2.718281828))
    compiled, golden = both(values, operators.operators[1])
    assert compiled.tolist() == golden.tolist() == [-5.0, -5.0]


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 5.0), (torch.float64, 2.718281828)])
def test_what_a_kernel_wrote_into_an_argument_is_what_was_copied_there(dtype: torch.dtype, expected: float) -> None:
    trace = OperatorTrace()
    trace.begin()
    into = torch.zeros(2, dtype=dtype)
    graph = make_fx(lambda into, x: into.copy_(aten.exp(x)), tracing_mode="fake")(into, torch.ones(2)).graph
    trace.end()
    operators = GraphOperators(trace, graph, is_backward=False)
    argument, x, _, copy, *_ = graph.nodes
    starts = {argument: into, x: torch.ones(2), copy: torch.full((2,), 5.0, dtype=dtype)}
    compiled, golden = both(OperatorValues(operators, starts, {}), operators.operators[0])
    # A copy that was rounded is not the value itself.
    torch.testing.assert_close(compiled, torch.full((2,), expected))
    torch.testing.assert_close(golden, torch.full((2,), 2.718281828))


def test_a_value_whose_node_was_joined_with_another_is_computed_by_its_operator() -> None:
    trace = OperatorTrace()
    trace.begin()
    graph = make_fx(lambda x: aten.neg(aten.exp(x)), tracing_mode="fake")(torch.ones(2)).graph
    trace.end()
    x, exponential, negated, *_ = graph.nodes
    with graph.inserting_before(exponential):
        joined = graph.call_function(aten.neg.default, (graph.call_function(aten.exp.default, (x,)),))
    joined.meta = negated.meta
    negated.replace_all_uses_with(joined)
    graph.erase_node(negated)
    graph.erase_node(exponential)
    operators = GraphOperators(trace, graph, is_backward=False)
    values = OperatorValues(operators, {x: torch.zeros(2)}, {})
    assert [both(values, one)[0].tolist() for one in operators.operators] == [[1.0, 1.0], [-1.0, -1.0]]


def test_a_list_that_the_compiler_writes_in_place_has_the_values_of_one_that_is_returned() -> None:
    x, y = torch.ones(2), torch.zeros(3)
    with traced(lambda x, y: aten._foreach_add([x, y], 2.0), x, y) as (operators, values):
        (node,) = (node for node in operators.nodes.values() if node.target is getitem and node.args[1] == 0)
        # As inductor does where nothing reads what was there before.
        node.args[0].target = aten._foreach_add_.Scalar  # type: ignore[union-attr]
        (_, _, compiled), (_, _, golden) = values.both_sides(operators.operators[0])
    assert [one.tolist() for one in compiled] == [one.tolist() for one in golden] == [[3.0] * 2, [2.0] * 3]
    assert (x.tolist(), y.tolist()) == ([1.0] * 2, [0.0] * 3)


def test_a_constant_takes_no_flag_of_what_comes_after_it() -> None:
    constant = torch.ones(3)

    def function(x: Tensor) -> Tensor:
        from torch._subclasses.functional_tensor import FunctionalTensor

        with FunctionalTensorMode() as mode:
            wrapped = FunctionalTensor.to_functional(x)
            with mode:
                product = aten.mul(constant, wrapped.requires_grad_())
        return torch._from_functional_tensor(product.elem)

    trace = OperatorTrace()
    trace.begin()
    make_fx(function)(torch.ones(3))
    trace.end()
    ((multiplied,),) = trace.programs.values()
    assert [getattr(one, "has_grad", None) for one in multiplied.args] == [None, True]


def test_an_operator_that_writes_in_place_keeps_its_name() -> None:
    def function(x: Tensor) -> Tensor:
        with FunctionalTensorMode() as mode:
            from torch._subclasses.functional_tensor import FunctionalTensor

            wrapped = FunctionalTensor.to_functional(x)
            with mode:
                y = wrapped * 2
                y.add_(1)
        return torch._from_functional_tensor(y.elem)

    with traced(function, torch.ones(3)) as (operators, _):
        assert names(operators) == ["Aten.mul.Tensor", "Aten.add_.Tensor"]


def test_a_backward_pass_takes_what_the_forward_pass_with_its_values_has_left() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["msprobe_value"] = 7
    program = 3
    own = torch.tensor([1.0, float("nan")])
    left = [Left({7: torch.zeros(2), 8: torch.zeros(1)}), Left({7: own, 8: torch.ones(1)})]
    trace: Any = SimpleNamespace(program_of={7: program}, left={program: left}, programs={program: []})
    operators = GraphOperators(trace, graph, is_backward=True)
    assert operators.take_left({x: own.clone()})[8].tolist() == [1.0]
    assert len(left) == 1


def test_what_was_left_for_a_backward_pass_that_can_no_longer_come_is_dropped() -> None:
    parameter, kept, freed = torch.ones(2), torch.ones(2), torch.ones(2)
    saved = [(parameter, kept), (parameter, freed), (parameter,), ()]
    left = [Left({7: one}, tuple(StorageWeakRef(each.untyped_storage()) for each in saved[one])) for one in range(4)]
    del freed, saved
    trace: Any = SimpleNamespace(program_of={}, left={0: left}, programs={0: []})
    operators = GraphOperators(trace, fx.Graph(), is_backward=False)
    operators.leave(OperatorValues(operators, {}, {}), [])
    assert [one.values[7] for one in left] == [0, 2, 3]


_MODEL = """
import copy
import torch
from torch import nn
from torch.nn import functional as F
from msprobe_hooks import record

torch._inductor.config.compile_threads = 1
torch.manual_seed(0)


class Model(nn.Module):
    # Statistics of batches, attention, and for each token two of four experts.
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.gate, self.experts = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 16) * 0.2)
        self.dropout, self.batch = nn.Dropout(0.0), nn.BatchNorm1d(16)

    def forward(self, x):
        x = self.batch(x)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / 4).masked_fill(torch.ones(12, 12).triu(1).bool(), float("-inf"))
        x = x + self.dropout(self.out(scores.softmax(-1) @ v))
        shares, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mixed = torch.zeros_like(x)
        for place in range(2):
            mixed += shares[:, place, None] * torch.einsum("td,tde->te", x, self.experts[chosen[:, place]])
        mixed.mul_(0.5)
        return F.silu(x + mixed) + F.gelu(x, approximate="tanh")


model, x = Model(), torch.randn(12, 16)
twin = copy.deepcopy(model)
PLANTED
with record("compiled", level="aten", task="tensor", golden_path="golden") as session:
    F.mse_loss(torch.compile(model)(x), torch.ones(12, 16)).backward()
print(session.summary)
with record("eager", level="aten", task="tensor"):
    F.mse_loss(twin(x), torch.ones(12, 16)).backward()
"""

# As a user registers a decomposition of an operator.
_WRONG = """
from torch._inductor.decomposition import decompositions
decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x * 1.01)
"""


def compare(pytester: pytest.Pytester, golden: str, target: str = "compiled") -> tuple[Checked, set[str]]:
    """Compare what compiled code computed with a recording; return the operators that failed as well."""
    checked = check(
        pytester, f"--msprobe-compare={target}", f"--msprobe-golden={golden}", "-omsprobe_fuzzy=true", apart=True
    )
    failed = {name.split(".")[1] for name, case in checked.cases.items() if case.outcome == "failed"}
    return checked, failed


@pytest.mark.slow
@pytest.mark.nightly
def test_a_wrong_decomposition_is_the_first_operator_that_differs(pytester: pytest.Pytester) -> None:
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    recorded = pytester.runpython(pytester.makepyfile(step=_MODEL.replace("PLANTED", _WRONG)))
    assert recorded.ret == 0, recorded.stderr.str()
    checked, failed = compare(pytester, "golden")
    assert "silu" in failed
    assert failed <= {"silu", "add"}
    checked.result.stdout.fnmatch_lines(["first forward culprit: Aten.silu.default.0.forward*", "*return F.silu(*"])
    checked, failed = compare(pytester, "eager")
    checked.result.stdout.fnmatch_lines(["first forward culprit: Aten.silu.default.0.forward*"])


@pytest.mark.slow
@pytest.mark.nightly
def test_the_operators_of_a_right_compilation_are_those_of_the_program(pytester: pytest.Pytester) -> None:
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    recorded = pytester.runpython(pytester.makepyfile(step=_MODEL.replace("PLANTED", "")))
    assert recorded.ret == 0, recorded.stderr.str()
    (not_judged,) = re.findall(r"not judged: (.*)", recorded.stdout.str())
    assert not_judged.startswith("Aten.native_batch_norm_backward.default.0.forward, as ")
    assert not_judged.endswith("(1)")
    for golden in ("golden", "eager"):
        checked, failed = compare(pytester, golden)
        assert failed == set()
        assert sum(case.outcome == "passed" for case in checked.cases.values()) > 100


_OPTIMIZER = """
import torch
from torch._inductor.lowering import lowerings
from msprobe_hooks import record

torch._inductor.config.compile_threads = 1
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=True)
layer(torch.randn(3, 4)).sum().backward()
with record("compiled", level="aten", task="tensor", golden_path="golden"):
    torch.compile(optimizer.step)()


@torch.compile
def noise(x):
    return torch.rand_like(x)


ones = torch.ones(3)
with record("random", level="aten", golden_path="golden-random") as session:
    noise(ones)
print(session.summary)

right, scaled = dict(lowerings), lowerings[torch.ops.aten.mul.Tensor]


def lower_wrong(target):
    return lambda ours, theirs, **settings: right[target](ours, [scaled(one, 1.01) for one in theirs], **settings)


lowerings |= {target: lower_wrong(target) for target in right if "_foreach_add" in str(target)}
with record("wrong", level="aten", task="tensor", golden_path="golden-wrong"):
    torch.compile(optimizer.step)()
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_fault_in_a_compiled_step_of_an_optimizer_is_named_and_what_is_not_judged_is_said(
    pytester: pytest.Pytester,
) -> None:
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    recorded = pytester.runpython(pytester.makepyfile(step=_OPTIMIZER))
    recorded.stdout.fnmatch_lines(
        ["nothing was recorded: operators that hang on random numbers drawn in their kernel are not judged (1 time)"]
    )
    checked, failed = compare(pytester, "golden")
    assert failed == set()
    assert checked.cases["Aten._foreach_add_.List.0.forward"].outcome == "passed"
    _, failed = compare(pytester, "golden-wrong", "wrong")
    assert failed == {"_foreach_add_"}


_EVALUATION = """
import gc
import torch
from torch import nn
from msprobe_hooks import record
from msprobe_hooks.extensions.compiled_graphs.traced_operators import Left

torch._inductor.config.compile_threads = 1
model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
compiled = torch.compile(model)


def left():
    return sum(type(one) is Left for one in gc.get_objects())


with record("compiled", level="aten", golden_path="golden"):
    for _ in range(5):
        compiled(torch.randn(3, 4)).sum()
    print("evaluated", left())
    first, second = (compiled(torch.randn(3, 4)).square().sum() for _ in range(2))
    print("forward", left())
    first.backward()
    second.backward()
    print("backward", left())
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_passes_of_an_evaluation_leave_no_more_than_the_last(pytester: pytest.Pytester) -> None:
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    recorded = pytester.runpython(pytester.makepyfile(step=_EVALUATION))
    assert recorded.outlines == ["evaluated 1", "forward 2", "backward 0"]
