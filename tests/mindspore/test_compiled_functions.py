"""Checking calls of functions that a program compiled, which are found where the program has them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor  # noqa: E402

from msprobe_hooks import record as recording  # noqa: E402
from tests.mindspore.calls import X, record  # noqa: E402
from tests.support.runs import Case, check  # noqa: E402

NETWORK = """
    import mindspore as ms
    import numpy as np
    from mindspore import Tensor, mint, nn, ops

    WEIGHT = Tensor(np.eye(4, dtype=np.float32))

    @ms.jit
    def tanh(a, b):
        return mint.tanh(mint.mul(a, b)), ops.softmax(a)

    @ms.jit
    def times_weight(a):
        return mint.matmul(a, WEIGHT)

    @ms.jit
    def pooled(a):
        return ops.avg_pool2d(a.reshape((1, 1, 4, 4)), 2)

    def by_another_name(a, factor=2):
        return ops.exp(a) * factor

    fast = ms.jit(by_another_name)

    double = lambda a: a * 2
    nameless = ms.jit(double)

    @ms.jit
    def drops(a):
        return ops.dropout(a, 0.5, True)

    class Net(nn.Cell):
        @ms.jit
        def construct(self, a):
            return ops.relu(a)

    def nested():
        @ms.jit
        def inner(a):
            return a + 1
        return inner
"""


@pytest.fixture
def network(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    pytester.makepyfile(network_of_a_program=NETWORK)
    pytester.syspathinsert()
    yield importlib.import_module("network_of_a_program")
    sys.modules.pop("network_of_a_program", None)


def dump_of(step: Callable[[Tensor], Any], folder: Path) -> dict[str, Any]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    x = Tensor(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
    with recording(folder, framework="mindspore"):
        ms.grad(step)(x)
    data: dict[str, Any] = json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"]
    return data


def checked(pytester: pytest.Pytester, *options: str) -> dict[str, Case]:
    """Return what came of each record of a compiled function."""
    run = check(pytester, "--msprobe-dump=dump", "--msprobe-device=cpu", "-k", "Jit", *options)
    return {name: case for name, case in run.cases.items() if name.startswith("Jit.")}


def test_a_recording_says_where_a_compiled_function_is(pytester: pytest.Pytester, network: ModuleType) -> None:
    data = dump_of(lambda x: network.fast(x).sum(), pytester.path / "dump")
    assert data["Jit.by_another_name.1.forward"]["details"]["settings"] == {
        "function": "network_of_a_program:by_another_name"
    }


def test_a_script_is_named_as_it_is_imported(pytester: pytest.Pytester) -> None:
    script = pytester.makepyfile(
        train="""
        import mindspore
        from msprobe_hooks.extensions.mindspore.call_recording import place_of

        def compute(): ...

        print(place_of(compute))
        """
    )
    assert pytester.runpython(script).stdout.str().strip() == "train:compute"


def test_compiled_functions_of_a_loaded_module_are_judged(pytester: pytest.Pytester, network: ModuleType) -> None:
    def step(x: Tensor) -> Any:
        first, second = network.tanh(x, x)
        return (network.times_weight(first) + network.fast(second, factor=3)).sum()

    dump_of(step, pytester.path / "dump")
    cases = checked(pytester, "-p", "network_of_a_program")
    assert len(cases) == 6
    assert {name: case.text for name, case in cases.items() if case.outcome != "passed"} == {}


@pytest.mark.parametrize("function", ["times_weight", "pooled"])
def test_what_refuses_a_raised_precision_is_judged_in_the_recorded_one_and_says_so(
    pytester: pytest.Pytester, network: ModuleType, function: str
) -> None:
    # A weight in float32 refuses float64 at once, average pooling in its gradient alone.
    dump_of(lambda x: getattr(network, function)(x).sum(), pytester.path / "dump")
    run = check(pytester, "--msprobe-dump=dump", "--msprobe-device=cpu", "-k", "Jit", "-p", "network_of_a_program")
    run.result.stdout.fnmatch_lines(
        [
            "2 passed with weak evidence: golden is the function in the recorded precision (torch.float32), as it "
            "rejects a higher one (names with -v)"
        ]
    )
    run.result.assert_outcomes(passed=2)


def test_a_function_of_the_same_name_that_a_module_imports_is_another_one(
    pytester: pytest.Pytester, network: ModuleType
) -> None:
    pytester.makepyfile(
        network_around="""
        import mindspore as ms
        from mindspore import ops
        from network_of_a_program import tanh as of_two_arguments

        @ms.jit
        def tanh(a):
            return ops.tanh(a)
        """
    )
    around = importlib.import_module("network_around")
    try:
        dump_of(lambda x: around.tanh(x).sum(), pytester.path / "dump")
        cases = checked(pytester, "-p", "network_around")
    finally:
        del sys.modules["network_around"]
    assert {name: case.text for name, case in cases.items() if case.outcome != "passed"} == {}
    assert len(cases) == 2


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_compiled_function_that_is_wrong_fails(
    pytester: pytest.Pytester, network: ModuleType, direction: str
) -> None:
    dump_of(lambda x: network.tanh(x, x)[0].sum(), pytester.path / "dump")
    pytester.makeconftest(
        f"""
        from pytest_msprobe.devices.sim import SimDevice

        class Faulty(SimDevice):
            name = "faulty"

            def call(self, func, args, kwargs, *, record):
                found = func(*args, **kwargs)
                if record == "Jit.tanh.1.{direction}":
                    found[0].detach().mul_(1.01)
                return found

        def pytest_msprobe_register_devices(registry):
            registry.add(Faulty())
        """
    )
    cases = checked(pytester, "-p", "network_of_a_program", "--msprobe-device=faulty")
    assert {name for name, case in cases.items() if case.outcome == "failed"} == {f"Jit.tanh.1.{direction}"}


def test_a_registered_definition_is_golden_in_place_of_the_function_itself(
    pytester: pytest.Pytester, network: ModuleType
) -> None:
    dump_of(lambda x: network.fast(x).sum(), pytester.path / "dump")
    pytester.makeconftest(
        """
        import torch

        def pytest_msprobe_register_references(registry):
            registry.add("Jit.by_another_name", lambda a, factor=2: torch.exp(a) * factor * 1.1)
        """
    )
    cases = checked(pytester, "-p", "network_of_a_program")
    assert {case.outcome for case in cases.values()} == {"failed"}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda net, x: net.drops(x), "returns different results when run twice"),
        (lambda net, x: net.Net()(x), "network_of_a_program:Net.construct is of a cell, whose weights"),
        (lambda net, x: net.nested()(x), "network_of_a_program:nested.<locals>.inner is made in a function"),
        (lambda net, x: net.nameless(x), "network_of_a_program:<lambda> has no name of its own"),
    ],
    ids=["random", "cell", "nested", "lambda"],
)
def test_a_compiled_function_that_cannot_be_judged_is_a_skip_that_says_why(
    pytester: pytest.Pytester, network: ModuleType, step: Callable[[ModuleType, Tensor], Any], said: str
) -> None:
    dump_of(lambda x: step(network, x).sum(), pytester.path / "dump")
    cases = checked(pytester, "-p", "network_of_a_program")
    assert {(case.outcome, said in case.text) for case in cases.values()} == {("skipped", True)}


@pytest.mark.parametrize(
    "place", ["os:getpid", "no_such_module:f", "network_of_a_program:by_another_nam", "mindspore.ops:exp", "nothing"]
)
def test_no_function_runs_that_no_loaded_module_compiles(
    pytester: pytest.Pytester, network: ModuleType, write_dump: Callable[..., Path], place: str
) -> None:
    records = record("Jit.f", X)
    records["Jit.f.0.forward"]["details"] = {"settings": {"function": place}}
    (pytester.path / "dump").mkdir()
    write_dump(records).rename(pytester.path / "dump" / "dump.json")
    [case] = checked(pytester, "-p", "network_of_a_program").values()
    assert f"or import it in conftest.py: {place}" in case.text
