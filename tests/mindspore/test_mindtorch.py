"""MindTorch, of which a small stand-in is here: torch's names over MindSpore, recorded and checked."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore")

from tests.mindspore.calls import X, record, tensor
from tests.support.runs import check

STAND_IN = Path(__file__).parents[1] / "support" / "mindtorch_stand_in"

TRAINING = """
    import importlib
    import sys

    import mindspore
    import numpy as np

    torch = importlib.import_module(sys.argv[1])

    from msprobe_hooks import record

    class Net(torch.nn.Module):
        def construct(self, x):
            return torch.nn.functional.relu(x)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def construct(self, x):
            return torch.nn.functional.softmax(self.net(torch.matmul(x, x)) - x, dim=-1)

    x = torch.tensor(np.random.default_rng(0).normal(size=(4, 4)))
    model = Model()
    with record("dump", level="mix", model=model, framework="mindspore"):
        mindspore.grad(lambda x: torch.max(model(x).exp(), 1)[0].sum())(x)
"""


@pytest.fixture
def of_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put MindTorch on the path as a package ``mindtorch``, and as ``msadapter``, its former name."""
    folder = tmp_path / "installed"
    for package, name in (("mindtorch", "torch"), ("msadapter", "torch"), ("msadapter", "pytorch")):
        shutil.copytree(STAND_IN / "torch", folder / package / name)
        (folder / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "mindtorch"]:
        del sys.modules[name]


def recorded(pytester: pytest.Pytester, how: str) -> dict[str, Any]:
    assert pytester.run(sys.executable, pytester.makepyfile(train=TRAINING), how).ret == 0
    dump: dict[str, Any] = json.loads((pytester.path / "dump" / "step0" / "rank" / "dump.json").read_text())
    return dump


@pytest.mark.parametrize("how", ["torch", "mindtorch.torch", "msadapter.torch", "msadapter.pytorch"])
def test_a_recording_has_torchs_names_and_mindspores_tensors(
    pytester: pytest.Pytester, of_its_own_name: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = STAND_IN if how == "torch" else of_its_own_name
    monkeypatch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
    dump = recorded(pytester, how)
    assert dump["framework"] == "mindtorch"
    assert {name for name in dump["data"] if name.endswith(("forward", "forward.0"))} == {
        "Torch.matmul.0.forward",
        "Functional.relu.0.forward",
        "Module.net.Net.forward.0",
        "Tensor.__sub__.0.forward",
        "Functional.softmax.0.forward",
        "Tensor.exp.0.forward",
        "Torch.max.0.forward",
        "Tensor.sum.0.forward",
    }
    assert "Torch.matmul.0.backward" in dump["data"]
    assert dump["data"]["Torch.matmul.0.forward"]["input_args"][0]["type"] == "mindspore.Tensor"


RECORDS = {
    **record("Torch.exp+", X),
    **record("Torch.matmul+", X, tensor(6, 3), output=[tensor(4, 3)]),
    **record("Torch.max", X, 1),
    **record("Functional.softmax+", X, dim=-1),
    **record("Tensor.tanh+", X),
    **record("Torch.cosh", X),
    **record("Torch.load", X),
}


def test_calls_are_judged_against_pytorchs(
    pytester: pytest.Pytester, of_its_own_name: Path, write_dump: Callable[..., Path]
) -> None:
    write_dump(RECORDS, framework="mindtorch")
    run = check(pytester, "--msprobe-dump=dump.json", "--msprobe-device=cpu")
    skipped = {name: case.text for name, case in run.cases.items() if case.outcome == "skipped"}
    assert skipped.keys() == {"Torch.cosh.0.forward", "Torch.load.0.forward"}
    assert "MindTorch's Torch.cosh" in skipped["Torch.cosh.0.forward"]
    assert {case.text for name, case in run.cases.items() if case.outcome == "failed"} == set()
    assert len(run.cases) == 11


def test_a_function_of_mindtorch_that_is_wrong_fails(
    pytester: pytest.Pytester, of_its_own_name: Path, write_dump: Callable[..., Path]
) -> None:
    functions = of_its_own_name / "mindtorch" / "torch" / "__init__.py"
    functions.write_text(functions.read_text().replace("mint.exp(input)", "mint.exp(input) * 1.001"))
    write_dump(RECORDS, framework="mindtorch")
    assert check(pytester, "--msprobe-dump=dump.json", "--msprobe-device=cpu").wrong == {
        "Torch.exp.0.forward",
        "Torch.exp.0.backward",
    }


@pytest.mark.slow
def test_what_was_recorded_is_checked_though_mindtorch_is_called_torch_and_comes_first(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN), prepend=os.pathsep)
    dump = recorded(pytester, "torch")
    run = check(pytester, "--msprobe-dump=dump", "--msprobe-device=cpu", "-n1", apart=True)
    calls = {name for name in dump["data"] if not name.startswith("Module.")}
    assert {name: run.outcomes.get(name) for name in calls} == dict.fromkeys(calls, "passed")
