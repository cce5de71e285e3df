"""Each function compiled: the compiler's faults are distinguished from the kernels'."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.conftests import device_after_each_call
from tests.support.requirements import require
from tests.support.runs import Checked, check

# Without a C++ compiler: graphs are captured and differentiated as for inductor, and run as they are.
_WRONG_DECOMPOSITION = """
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend

aten = torch.ops.aten


def softplus(x, beta=1, threshold=20):
    return torch.log1p(torch.exp(x)) * 1.001


def as_it_is(graph, inputs):
    return make_boxed_func(graph)


def tanh_backward(gradient, output):
    return gradient * (1 - output)


planted = aot_autograd(
    fw_compiler=as_it_is,
    decompositions={aten.softplus.default: softplus, aten.tanh_backward.default: tanh_backward},
)


def pytest_configure():
    register_backend(compiler_fn=planted, name="planted")
"""


@pytest.fixture
def compiled(pytester: pytest.Pytester) -> Callable[..., Checked]:
    """Check a dump on the compiled device, in a process of its own: compiling changes torch for all that follows."""

    def run(dump: Path, *arguments: str, backend: str = "planted", extra: str = "") -> Checked:
        pytester.makeconftest(_WRONG_DECOMPOSITION + extra)
        return check(pytester, f"--msprobe-dump={dump}", f"--msprobe-device=compiled:{backend}", *arguments, apart=True)

    return run


def calls(element: Any, forward: Any, backward: Any, *names: str) -> dict[str, Any]:
    """Return a forward and a backward record for each function of one float32 tensor."""
    x = element(4, 16, requires_grad=True)
    records = {}
    for name in names:
        records[f"{name}.0.forward"] = forward(x, output=[element(4, 16)])
        records[f"{name}.0.backward"] = backward
    return records


@pytest.fixture
def backward(element: Any) -> dict[str, Any]:
    return {"input": [element(4, 16)], "output": [element(4, 16)]}


@pytest.mark.slow
def test_a_wrong_decomposition_is_found_and_called_the_compilers_fault(
    compiled: Callable[..., Checked], write_dump: Any, element: Any, forward: Any, backward: Any
) -> None:
    dump = write_dump(calls(element, forward, backward, "Functional.softplus", "Torch.tanh", "Torch.exp"))
    found = compiled(dump)
    assert found.wrong == {"Functional.softplus.0.forward", "Torch.tanh.0.backward"}
    for name in found.wrong:
        assert "It passes without torch.compile: the code that planted made of it is wrong." in found.cases[name].text
    assert "6 compiled by planted in" in found.output


_WRONG_KERNELS = """
from pytest_msprobe.extensions.compiled_graphs.compiled_device import CompiledDevice


def pytest_msprobe_register_devices(registry):
    registry.add(CompiledDevice(best=PlantedDevice))
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_wrong_kernel_is_not_called_the_compilers_fault(
    pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any
) -> None:
    dump = write_dump({"Torch.exp.0.forward": forward(element(4, 16))})
    pytester.makeconftest(device_after_each_call("result = result * 1.01") + _WRONG_KERNELS)
    found = check(pytester, f"--msprobe-dump={dump}", "--msprobe-device=compiled:aot_eager", apart=True)
    text = found.cases["Torch.exp.0.forward"].text
    assert "It fails without torch.compile as well, so the kernel is wrong: output.0:" in text


@pytest.mark.nightly
@pytest.mark.slow
def test_an_error_that_comes_once_is_not_called_the_compilers_fault(
    pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any
) -> None:
    dump = write_dump({"Torch.exp.0.forward": forward(element(4, 16))})
    once = "self.runs = getattr(self, 'runs', 0) + bool(record)\nresult = result + (self.runs == 1 and bool(record))"
    pytester.makeconftest(device_after_each_call(once) + _WRONG_KERNELS)
    found = check(pytester, f"--msprobe-dump={dump}", "--msprobe-device=compiled:aot_eager", apart=True)
    text = found.cases["Torch.exp.0.forward"].text
    assert "It passes without torch.compile, and passed when run again compiled: it is not wrong each time." in text


@pytest.mark.slow
def test_what_was_not_compiled_passes_with_little_judged_and_graph_breaks_are_counted(
    compiled: Callable[..., Checked], write_dump: Any, element: Any, forward: Any
) -> None:
    dump = write_dump({"Torch.nonzero.0.forward": forward(element(8)), "Torch.exp.0.forward": forward(element(8))})
    output = compiled(dump).output
    assert "1 passed with weak evidence: planted compiled nothing of it: " in output
    assert "1 with a graph break: " in output


@pytest.mark.nightly
@pytest.mark.slow
def test_inductor_compiles_both_directions_and_says_where_it_only_calls_the_eager_kernel(
    compiled: Callable[..., Checked], write_dump: Any, element: Any, forward: Any, backward: Any
) -> None:
    require(shutil.which(os.environ.get("CXX", "g++")), "a C++ compiler")
    x = element(4, 16)
    dump = write_dump(
        calls(element, forward, backward, "Torch.exp")
        | {f"Torch.exp.{number}.forward": forward(x) for number in (1, 2)}
        | {"Torch.matmul.0.forward": forward(x, element(16, 3))}
    )
    found = compiled(dump, backend="inductor")
    assert found.exit_code == 0
    assert "1 passed with weak evidence: inductor only calls the eager kernel" in found.output
    # Of calls 1 and 2, which need no gradient, one compilation.
    assert "4 compiled by inductor in" in found.output


_SLOW = """

def slow(graph, inputs):
    import time

    time.sleep(11)
    return make_boxed_func(graph)


planted = aot_autograd(fw_compiler=slow)
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_seconds_of_compiling_are_not_those_of_the_item(
    compiled: Callable[..., Checked], write_dump: Any, element: Any, forward: Any
) -> None:
    dump = write_dump({"Torch.exp.0.forward": forward(element(8))})
    assert compiled(dump, "--msprobe-timeout=10", extra=_SLOW).exit_code == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_an_unknown_backend_is_one_error_that_names_the_known_ones(
    pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any
) -> None:
    dump = write_dump({"Torch.exp.0.forward": forward(element(8))})
    found = check(pytester, f"--msprobe-dump={dump}", "--msprobe-device=compiled:no_such", apart=True)
    assert found.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "device 'compiled:no_such': torch.compile has no such backend; it has " in found.errors
    assert "aot_eager" in found.errors


@pytest.mark.nightly
@pytest.mark.slow
def test_without_a_compiler_inductor_is_one_error_with_the_remedy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, write_dump: Any, element: Any, forward: Any
) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(pytester.path / "cache"))
    dump = write_dump({"Torch.exp.0.forward": forward(element(8))})
    found = check(pytester, f"--msprobe-dump={dump}", "--msprobe-device=compiled", apart=True)
    assert found.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "needs a C++ compiler (CXX names one) for the CPU, compiled:aot_eager needs none" in found.errors


@pytest.mark.nightly
@pytest.mark.slow
def test_a_compiled_module_is_checked_against_the_module(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from torch import nn


        def wrong(graph, inputs):
            return lambda *args: [output * 1.01 for output in graph(*args)]


        def block():
            return nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.GELU())


        def test_right(precision):
            module = block()
            precision.check(torch.compile(module, backend="eager"), torch.randn(4, 16), golden=module, backward=True)


        def test_wrong(precision):
            module = block()
            precision.check(torch.compile(module, backend=wrong), torch.randn(4, 16), golden=module)
        """
    )
    check(pytester, "--msprobe-device=cpu", apart=True).result.assert_outcomes(passed=1, failed=1)
