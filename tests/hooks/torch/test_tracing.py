"""What compilers and tracers of torch run is no call of the program."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from msprobe_hooks import record
from tests.support.requirements import require

X = torch.ones(4, 8)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))


def computed(x: torch.Tensor) -> torch.Tensor:
    return (torch.relu(x) * 2).sum()


def in_fake_mode() -> None:
    with FakeTensorMode():
        weight = torch.ones(8, 8, requires_grad=True)
        computed(torch.ones(4, 8) @ weight).backward()


NET = model()

#: Each traces, and computes no number of a program.
TRACERS: dict[str, Callable[[], object]] = {
    "make_fx": lambda: make_fx(computed)(X),
    "make_fx of fake tensors": lambda: make_fx(computed, tracing_mode="fake")(X),
    "make_fx of symbolic sizes": lambda: make_fx(computed, tracing_mode="symbolic")(X),
    "make_fx before dispatch": lambda: make_fx(computed, pre_dispatch=True)(X),
    "make_fx of a gradient": lambda: make_fx(torch.func.grad(computed))(X),
    "make_fx of functionalize": lambda: make_fx(torch.func.functionalize(computed))(X),
    "FakeTensorMode": in_fake_mode,
    "export": lambda: torch.export.export(NET, (X,), strict=False),
    "strict export": lambda: torch.export.export(NET, (X,), strict=True),
}
# Inductor's compiler is started in a process that no other test has changed.
INDUCTOR = """
import sys, torch
from torch import nn
from msprobe_hooks import record
torch._inductor.config.compile_threads = 1
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
compiled, x, level = torch.compile(net), torch.ones(2, 4), sys.argv[1]
with record("d", level, **({"model": net} if level == "mix" else {})) as session:
    for _ in range(2):
        compiled(x).square().mean().backward()
assert session.recorder.summary.errors == {}, session.recorder.summary.errors
"""


@pytest.fixture(autouse=True)
def compiled_anew():
    """Compile everything that a test compiles."""
    torch._dynamo.reset()


@pytest.mark.parametrize("name", TRACERS)
def test_what_is_traced_is_counted_and_not_recorded(tmp_path, name):
    with record(tmp_path / "d") as session:
        TRACERS[name]()
    summary = session.recorder.summary
    assert (summary.records, summary.errors, summary.unrecorded) == (0, {}, {})
    assert summary.traced > 0


@pytest.mark.parametrize("name", ["make_fx", "make_fx of fake tensors", "FakeTensorMode", "export"])
def test_operators_that_are_traced_are_not_recorded_at_level_aten(tmp_path, records, name):
    with record(tmp_path / "d", "aten") as session:
        TRACERS[name]()
        torch.sigmoid(X)
    assert session.recorder.summary.traced > 0
    assert list(records(tmp_path / "d")) == ["Aten.sigmoid.default.0.forward"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_step_that_is_compiled_has_no_records_of_the_compiler(tmp_path, records, backend, level):
    net = model()
    compiled = torch.compile(net, backend=backend)
    with record(tmp_path / "d", level, **({"model": net} if level == "mix" else {})) as session:
        for _ in range(2):
            compiled(X).square().mean().backward()
    assert session.recorder.summary.errors == {}
    assert_no_records_of_the_compiler(records(tmp_path / "d"))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_step_that_inductor_compiles_has_no_records_of_the_compiler(tmp_path, records, forked, level):
    require(shutil.which("g++") is not None, "a C++ compiler")
    done = forked.run(INDUCTOR, tmp_path, level, timeout=300)
    assert done.returncode == 0, done.stderr
    assert_no_records_of_the_compiler(records(tmp_path / "d"))


def assert_no_records_of_the_compiler(found):
    assert "FakeTensor" not in str(found)
    # Both steps have the same records, though the first one was compiled.
    counts = [sum(name.startswith(api) for name in found) for api in ("Tensor.square", "Tensor.mean", "Torch.mm")]
    assert all(count % 2 == 0 for count in counts)
    assert counts[0] == 4
    assert not any(name.startswith(("Tensor.stride", "Torch.clone")) for name in found)


def test_the_summary_counts_what_a_tracer_runs(tmp_path):
    with record(tmp_path / "d") as session:
        torch.sigmoid(X)
        make_fx(torch.relu)(X)
    traced = session.recorder.summary.traced
    assert f"not recorded, as a compiler or tracer of torch makes them: {traced} calls" in str(session.summary)


def test_modules_that_are_traced_are_counted_where_nothing_else_is_recorded(tmp_path, caplog):
    net = model()
    with record(tmp_path / "d", "L0", model=net):
        make_fx(net)(X)
    assert "nothing was recorded: a compiler or tracer of torch made all of 3 calls" in caplog.text
