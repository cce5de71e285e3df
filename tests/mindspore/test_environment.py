"""A training of MindSpore that is followed from its start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import pytest

from msprobe_hooks.extensions.environment.start_file import Started, TensorFact, read_started
from tests.support.nightly import nightly_but
from tests.support.trainings.started import start

Check = Callable[..., Any]

#: A convolutional model with moving statistics and a layer in bfloat16, in random batches.
CONVOLUTIONS = """
import sys
from pathlib import Path
import mindspore as ms
from msprobe_hooks import write_environment

given = dict(word.split("=") for word in sys.argv[1:])
if "plain" not in given:
    write_environment("start", framework="mindspore", settings={"lr": float(given.get("lr", 0.1))})

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import rand

ms.set_context(mode=int(given.get("mode", ms.PYNATIVE_MODE)))
ms.set_seed(int(given.get("seed", 3)))
np.random.seed(int(given.get("seed", 3)))


class Model(nn.Cell):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Dense(256, 5)

    def construct(self, image, scale=1.0):
        hidden = ops.relu(self.norm(self.convolution(image)))
        return self.head(hidden.reshape(hidden.shape[0], -1)) * scale


model = Model()
extra = nn.Dense(3, 3).to_float(ms.bfloat16)
if "nudge" in given:
    bias = model.head.bias.asnumpy()
    bias[2] += 1e-3
    model.head.bias.set_data(Tensor(bias))
images = np.random.standard_normal((24, 1, 8, 8)).astype(np.float32)
rows = np.random.permutation(24)[:: int(given.get("order", 1))]
noise = [rand(2), ops.randint(0, 4, (3,))]
noise.append(ops.randperm(5))
optimizer = nn.SGD(model.trainable_params(), learning_rate=float(given.get("lr", 0.1)))


def forward(image, label):
    return ops.cross_entropy(model(image, scale=2.0), label)


@ms.jit
def noisy(x):
    return x + rand(2)


step = ms.value_and_grad(forward, None, optimizer.parameters)
if "jit" in given:
    noise.append(noisy(Tensor([1.0, 2.0])))
for number in range(3):
    chosen = rows[number * 8 : number * 8 + 8]
    loss, gradients = step(Tensor(images[chosen]), Tensor(chosen % 5, ms.int32))
    optimizer(gradients)
noise.append(rand(2))
assert nn.Cell.__call__.__qualname__ == "Cell.__call__"
Path("loss").write_text(repr([loss.asnumpy().tobytes(), *(each.asnumpy().tobytes() for each in noise)]))
"""


def written(folder: Path) -> Started:
    return read_started(folder / "rank0.json")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tmp_path_factory.mktemp("golden") / "run", CONVOLUTIONS)


@pytest.fixture
def compare(check: Check, tmp_path: Path, golden: Path) -> Check:
    """Start the script with other arguments and compare that with how it is."""

    def compare(*arguments: str) -> Any:
        target = start(tmp_path / "target", CONVOLUTIONS, *arguments)
        return check(f"--msprobe-environment={target}", f"--msprobe-golden={golden}")

    return compare


@pytest.mark.slow
def test_what_a_cell_is_given_and_consists_of_is_written_for_its_first_calls(golden: Path) -> None:
    started = written(golden)
    assert started.batches is not None
    assert started.weights is not None
    assert list(started.batches) == [0, 1]
    assert list(started.batches[0]) == ["args.0", "kwargs.scale"]
    image = started.batches[0]["args.0"]
    assert isinstance(image, TensorFact)
    assert (image.dtype, image.shape) == ("float32", (8, 1, 8, 8))
    assert {"convolution.weight", "norm.moving_mean", "head.bias"} <= set(started.weights[0])
    assert started.weights[0]["norm.moving_mean"].norm == 0
    assert started.weights[0]["head.weight"].digest != started.weights[1]["head.weight"].digest
    assert started.switches is not None
    assert (started.switches["mode"], started.switches["device_target"]) == ("PYNATIVE_MODE", "CPU")


@pytest.mark.slow
def test_random_calls_before_the_first_forward_pass_are_counted_by_stack(golden: Path) -> None:
    started = written(golden)
    assert started.random is not None
    counts = {name: [calls.count for calls in found] for name, found in started.random.items()}
    assert {name: counts[name] for name in counts if name.startswith("mindspore.ops.")} == {
        "mindspore.ops.rand": [1],
        "mindspore.ops.randint": [1],
        "mindspore.ops.randperm": [1],
    }
    assert counts["mindspore.set_seed"] == [1]
    innermost = started.random["mindspore.ops.rand"][0].stack[-1]
    assert innermost.endswith("in <module>, noise = [rand(2), ops.randint(0, 4, (3,))]")
    assert started.seeds is not None
    assert started.seeds["mindspore.set_seed"] == "3"


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param([], id="calls"),
        pytest.param([f"mode={mindspore.GRAPH_MODE}", "jit=1"], id="graphs", marks=pytest.mark.nightly),
    ],
)
def test_training_computes_the_same_bits(tmp_path: Path, mode: list[str]) -> None:
    for name, plain in (("followed", []), ("plain", ["plain=1"])):
        start(tmp_path / name, CONVOLUTIONS, *mode, *plain)
    followed, plain = ((tmp_path / name / "loss").read_text() for name in ("followed", "plain"))
    assert followed == plain
    if mode:
        assert list(written(tmp_path / "followed/start").weights or {}) == [0, 1]


@pytest.mark.slow
def test_equal_starts_are_equal(compare: Check) -> None:
    assert "the two environments are equal" in compare().output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argument", "named"),
    nightly_but(
        [
            ("lr=0.2", "arguments/lr"),
            ("seed=4", "seeds/mindspore.set_seed"),
            ("order=-1", "batches/step0/args.0"),
            ("nudge=1", "weights/step0/head.bias"),
            (f"mode={mindspore.GRAPH_MODE}", "switches/mode"),
        ],
        ("nudge=1", "weights/step0/head.bias"),
    ),
)
def test_what_was_changed_is_named(compare: Check, argument: str, named: str) -> None:
    assert named in compare(argument).wrong


def test_a_process_that_calls_no_cell_is_reported(tmp_path: Path) -> None:
    script = 'from msprobe_hooks import write_environment\nwrite_environment("start", framework="mindspore")\n'
    assert written(start(tmp_path / "run", script)).problems == ["no model was called"]
