"""The free benchmark of MindSpore: each ratio is computed by hand, and no bit of a training changes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn, ops  # noqa: E402

from msprobe_hooks import ConfigError  # noqa: E402
from msprobe_hooks.extensions.free_benchmark.argument_changes import NotPerturbedError  # noqa: E402
from msprobe_hooks.extensions.free_benchmark.mindspore_recorder import MindSporeJudging, perturb  # noqa: E402
from msprobe_hooks.mindspore import PrecisionDebugger  # noqa: E402
from tests.support.trainings.free_benchmark import run_free_benchmark  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")

Run = Callable[..., tuple[list[dict[str, str]], Any]]


@pytest.fixture
def benchmark(tmp_path: Path) -> Iterator[Run]:
    """Run programs under the free benchmark, a step each; return the rows of the table and the summary."""

    def run(*programs: Callable[[], Any], model: Any = None, **section: Any) -> Any:
        summary = run_free_benchmark(PrecisionDebugger, tmp_path, programs, section, model)
        table = tmp_path / "dump" / "free_benchmark.csv"
        return list(csv.DictReader(table.read_text().splitlines())) if table.exists() else [], summary

    return run


class Model(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.norm, self.out = nn.Dense(8, 16), nn.BatchNorm1d(16), nn.Dense(16, 4)
        self.drop = nn.Dropout(p=0.3)

    def construct(self, x: Tensor) -> Tensor:
        x = self.drop(ops.gelu(self.norm(self.hidden(x)))).astype(ms.float16)
        return self.out((ops.softmax(x, -1) * 2.0).astype(ms.float32))


class Training:
    """Two steps that draw random numbers, update statistics and write over parameters."""

    def __init__(self) -> None:
        ms.set_seed(0)
        self.model = Model()
        self.model.set_train()
        self.optimizer = nn.Momentum(self.model.trainable_params(), 0.1, 0.9)
        # Not cross_entropy: of the same bits MindSpore's gives now and then another last bit.
        self.step = ms.value_and_grad(lambda x: ops.square(self.model(x)).mean(), None, self.optimizer.parameters)
        self.results: list[bytes] = []

    def __call__(self) -> None:
        loss, gradients = self.step(Tensor(np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)))
        self.optimizer(gradients)
        found = [loss, *gradients, *self.model.get_parameters()]
        self.results += [each.asnumpy().tobytes() for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["add_noise", "bit_noise", "change_value", "no_change", "improve_precision"])
@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_check_changes_no_bit_of_the_training(benchmark: Run, mode: str, stage: str) -> None:
    plain, checked = Training(), Training()
    plain()
    plain()
    _, summary = benchmark(checked, checked, model=checked.model, pert_mode=mode, fuzz_stage=stage, list=["."])
    assert checked.results == plain.results
    assert summary.perturbed > 3
    assert not summary.errors


def test_what_changes_too_much_is_a_row_of_the_one_table(benchmark: Run, tmp_path: Path) -> None:
    x = Tensor(np.array([3.0, 2.0, 1.0], np.float32))

    def program() -> None:
        mint.mul(x, 2.0)
        mint.sum(x)

    rows, summary = benchmark(program, program, pert_mode="change_value", list=["Mint.mul"])
    expected = {
        "rank": "",
        "pert_type": "change_value",
        "stage": "forward",
        "step": "0",
        "api_name": "Mint.mul.0.forward",
        # 6, 4, 2 against 2, 4, 6
        "max_rel": "2.0",
        "dtype": "Float32",
        "shape": "(3,)",
        "output_index": "",
    }
    assert rows == [expected, expected | {"step": "1"}]
    assert summary.inconsistent == {"Mint.mul": 2}


def test_a_change_of_sign_is_written_as_msprobe_does(benchmark: Run) -> None:
    x = Tensor(np.array([3.0, -1.0], np.float32))
    rows, _ = benchmark(lambda: mint.mul(x, 2.0), pert_mode="change_value")
    assert [row["max_rel"] for row in rows] == ["7.0"]


def test_a_list_takes_functions_as_msprobe_does(benchmark: Run) -> None:
    x = Tensor(np.array([3.0, 2.0], np.float32))

    def program() -> None:
        mint.mul(x, 2.0)
        ops.mul(x, 2.0)
        mint.max(x)
        mint.maximum(x, x)

    names = ["mindspore.mint.mul", "mindspore.mint.max"]
    rows, summary = benchmark(program, pert_mode="change_value", list=names)
    assert [row["api_name"] for row in rows] == ["Mint.mul.0.forward"]
    assert summary.perturbed == 2


def test_a_call_that_writes_over_its_inputs_is_made_again_on_copies(benchmark: Run) -> None:
    parameter = ms.Parameter(Tensor(np.array([1.0, 5.0], np.float32)))
    added = Tensor(np.array([2.0, 2.0], np.float32))
    rows, summary = benchmark(
        lambda: ops.assign_add(parameter, added), pert_mode="change_value", list=["Functional.assign_add"]
    )
    assert parameter.asnumpy().tolist() == [3, 7]
    # 3, 7 against 7, 3
    assert [float(row["max_rel"]) for row in rows] == pytest.approx([4 / 3])
    assert not summary.errors


def test_gradients_are_compared_with_those_of_perturbed_inputs(benchmark: Run) -> None:
    x = Tensor(np.array([1.0, 2.0, 4.0], np.float32))
    rows, _ = benchmark(
        lambda: ms.grad(lambda x: (mint.mul(x, x) * 3.0).sum())(x),
        pert_mode="change_value",
        fuzz_stage="backward",
        list=["Mint.mul"],
    )
    # Given twice, only the first place is perturbed: 3 (x + x), 6 12 24, against 3 (x' + x), 15 12 15.
    assert [row["api_name"] for row in rows] == ["Mint.mul.0.backward"] * 2
    assert [float(row["max_rel"]) for row in rows] == pytest.approx([1.5, 1.5])


def test_fix_goes_on_with_the_result_of_float32_and_its_gradients(benchmark: Run) -> None:
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float16)
    x, found = Tensor(values), []

    def program() -> None:
        found.extend(ms.value_and_grad(lambda x: ops.softmax(x * 1.0, -1).sum() * 1.0)(x))
        found.append(ops.softmax(x, -1))

    rows, summary = benchmark(program, handler_type="fix", list=["softmax"])
    wide = ops.softmax(x.astype(ms.float32), -1).astype(ms.float16).asnumpy()
    assert found[-1].asnumpy().tobytes() == wide.tobytes()
    assert found[-1].asnumpy().tobytes() != ops.softmax(x, -1).asnumpy().tobytes()
    assert found[0].dtype == found[1].dtype == ms.float16
    assert rows == []
    assert summary.fixed == 2


def test_compiled_and_random_calls_are_left_out_and_counted(benchmark: Run) -> None:
    x = Tensor(np.ones((2, 3), np.float32))

    @ms.jit
    def compiled(x: Tensor) -> Tensor:
        return x * 2.0

    def program() -> None:
        ops.dropout(x, 0.5)
        compiled(x)

    _, summary = benchmark(program, pert_mode="no_change")
    assert summary.left_out == {
        "it draws random numbers": 1,
        "it is compiled, and may change parameters that are not its arguments": 1,
    }


def test_preheating_is_left_out_with_a_warning(benchmark: Run, caplog: pytest.LogCaptureFixture) -> None:
    x = Tensor(np.array([1.0, 2.0], np.float32))
    rows, _ = benchmark(lambda: mint.exp(x), pert_mode="change_value", if_preheat=True)
    assert len(rows) == 1
    assert "if_preheat is ignored with MindSpore" in caplog.text


def test_the_cpu_is_no_other_device_for_mindspore(benchmark: Run) -> None:
    with pytest.raises(ConfigError, match=r"pert_mode is 'to_cpu'; allowed: improve_precision, .* with MindSpore"):
        benchmark(pert_mode="to_cpu", fuzz_device="cpu")


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_perturbations_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    from msprobe_hooks.extensions.free_benchmark import torch_perturbations

    values = np.array([[1.5, -3e-3, 0.0, 2e-5], [7.0, 1e-40, -0.25, 100.0]])
    tensor = torch.tensor(values, dtype=getattr(torch, name))
    same = Tensor(tensor.double().numpy()).astype(getattr(ms, name))
    for perturbation in ("add_noise", "bit_noise", "change_value", "improve_precision"):
        if perturbation == "improve_precision" and name in ("float32", "float64"):
            continue
        (expected,), _ = torch_perturbations.perturb(perturbation, [tensor], {})
        (found,), _ = perturb(perturbation, (same,), {})
        assert found.astype(ms.float64).asnumpy().tolist() == expected.double().tolist(), perturbation


def test_what_cannot_be_perturbed_says_why() -> None:
    with pytest.raises(NotPerturbedError, match="smaller than the noise"):
        perturb("add_noise", (Tensor(np.zeros(3, np.float32)),), {})
    with pytest.raises(NotPerturbedError, match="too few elements"):
        perturb("change_value", (Tensor(np.ones((3, 0), np.float32)),), {})
    with pytest.raises(NotPerturbedError, match="no float tensor"):
        perturb("no_change", (Tensor(np.ones(3, np.int32)),), {})


def test_ratios_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from msprobe_hooks.extensions.free_benchmark.torch_perturbations import largest_ratio

    random = np.random.default_rng(0)
    a = random.normal(size=50).astype(np.float32)
    b = a * (1 + random.normal(size=50) * 1e-3).astype(np.float32)
    b[0], a[1], b[1] = np.nan, 1e-6, 3e-7
    for other in (b, -b):
        found = MindSporeJudging().largest_ratio(Tensor(a), Tensor(other), 1e-4)
        assert found == largest_ratio(torch.from_numpy(a), torch.from_numpy(other), 1e-4)


def test_a_recurrent_layer_is_made_again_as_the_primitive_that_it_is(benchmark: Run) -> None:
    layer, x = nn.LSTM(3, 4), Tensor(np.ones((5, 2, 3), np.float32))
    expected = layer(x)[0].asnumpy()
    found: list[Any] = []
    _, summary = benchmark(lambda: found.append(layer(x)[0].asnumpy()), list=["LSTM"], pert_mode="no_change")
    assert np.array_equal(found[0], expected)
    assert summary.perturbed == 1
