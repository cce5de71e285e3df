"""Steps of MindSpore that are computed twice: the training keeps its bits, and what differs is named."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn, ops  # noqa: E402

import msprobe_hooks  # noqa: E402
from msprobe_hooks.errors import ConfigError, DifferingStepError  # noqa: E402
from msprobe_hooks.extensions.repeated_steps import mindspore_calls, mindspore_steps, replaying  # noqa: E402
from msprobe_hooks.extensions.repeated_steps.differences import Difference  # noqa: E402
from tests.support.runs import check  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


@pytest.fixture
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch from the third step on: these models have no kernel whose first launches differ."""
    monkeypatch.setattr(mindspore_steps, "_UNWATCHED_ON_CPU", 2)


class Net(nn.Cell):  # type: ignore[misc]
    """Draws numbers of each kind and has statistics that each pass moves."""

    def __init__(self, drop: float = 0.3) -> None:
        super().__init__()
        self.conv, self.norm, self.drop, self.head = (
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.Dropout(p=drop),
            nn.Dense(4, 3),
        )

    def construct(self, x: Tensor) -> Tensor:
        hidden = self.drop(ops.relu(self.norm(self.conv(x))))
        hidden = hidden + ops.standard_normal(hidden.shape) * random.random() * float(np.random.rand())
        return self.head(hidden.mean((2, 3)))


class Plain(nn.Cell):  # type: ignore[misc]
    """Two layers with a function of MindSpore between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Dense(4, 4), nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.second(ops.tanh(self.first(x)))


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def train(folder: Path, steps: int = 4, wrap: Callable[[Any], Any] = lambda one: one, **options: Any) -> Any:
    """Return what watched a training, and what it has learned."""
    ms.set_seed(0)
    model = Plain()
    optimizer = nn.Adam(model.trainable_params(), 0.01)

    def loss_of(x: Tensor) -> Tensor:
        return ops.square(model(x)).sum()

    gradients = wrap(ms.value_and_grad(loss_of, None, model.trainable_params()))
    replay = msprobe_hooks.replay_step(model, every=1, folder=folder, **options)
    for _ in range(steps):
        loss, found = replay(lambda: gradients(Tensor(X)))
        optimizer(found)
    return replay, [loss.asnumpy().tobytes(), *(one.asnumpy().tobytes() for one in model.get_parameters())]


@contextmanager
def flipped(number: int, bit: int = 27, name: str = "tanh") -> Iterator[None]:
    """Flip a bit of the first element in the result of one call of a function, counted from 1."""
    function, calls = getattr(ops, name), iter(range(1, 1000))

    def flipping(*args: Any) -> Any:
        result = function(*args)
        if next(calls) == number:
            # The array shares the memory of the tensor.
            result.asnumpy().reshape(-1)[:1].view(np.int32)[0] ^= 1 << bit
        return result

    setattr(ops, name, flipping)
    try:
        yield
    finally:
        setattr(ops, name, function)


def only(replay: Any) -> Difference:
    (found,) = replay.report.differences
    assert isinstance(found, Difference)
    return found


@pytest.mark.parametrize("watched", [5, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_steps_with_dropout_and_batch_norm_raise_no_alarm(tmp_path: Path, watched: int) -> None:
    ms.set_seed(0)
    model = Net().set_train()
    optimizer = nn.Adam(model.trainable_params(), 0.01)
    loss_of = nn.CrossEntropyLoss()
    gradients = ms.value_and_grad(lambda x, y: loss_of(model(x), y), None, model.trainable_params())
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path)
    for _ in range(30 + watched):
        x = Tensor(np.random.randn(4, 1, 6, 6).astype(np.float32))
        optimizer(replay(lambda x=x: gradients(x, Tensor([0, 1, 2, 0], ms.int32)))[1])
    assert replay.report.differences == []
    assert (replay.report.watched, replay.report.other_calls, replay.report.not_put_back) == (watched, 0, [])
    assert replay.report.calls > 20


@pytest.mark.usefixtures("_early")
def test_passes_that_draw_leave_the_statistics_and_the_generators_of_one_pass(tmp_path: Path) -> None:
    # Without scale and shift of its own, the statistics after a pass are known from its input alone.
    model = nn.BatchNorm2d(2).set_train()
    x = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32)
    gradients = ms.value_and_grad(lambda x: model(x).sum(), None, model.trainable_params())
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path)
    drawn = []

    def forward_backward() -> Any:
        drawn.append((random.random(), np.random.rand()))
        return gradients(Tensor(x))

    random.seed(0)
    np.random.seed(0)
    for _ in range(5):
        replay(forward_backward)
    assert replay.report.differences == []
    # Steps 2, 3 and 4 are made twice: both passes draw the same.
    assert len(drawn) == 8
    assert drawn[2] == drawn[3]
    assert len(set(drawn)) == 5
    expected = x.astype(np.float64).mean((0, 2, 3)) * (1 - 0.9**5)
    np.testing.assert_allclose(model.moving_mean.asnumpy(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("keep", [0.9, 0.7, 0.23])
def test_dropout_is_repeated_bit_by_bit(tmp_path: Path, dtype: Any, keep: float) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((64, 33)).astype(dtype))
    draws, drop = mindspore_steps.Draws(), ops.Dropout(keep_prob=keep)
    method = draws.wrap(type(drop).__call__, "Dropout")
    passes = []
    for _ in range(2):
        with draws.following():
            passes.append(ms.value_and_grad(lambda x: (method(drop, x)[0] * x).sum())(x))
    (one, its_gradient), (other, gradient) = passes
    assert one.asnumpy().tobytes() == other.asnumpy().tobytes()
    assert its_gradient.asnumpy().tobytes() == gradient.asnumpy().tobytes()
    assert draws.lost == set()


@pytest.mark.usefixtures("_early")
@pytest.mark.parametrize(("number", "odd"), [(3, 1), (4, 2)])
def test_a_flipped_bit_is_named_and_does_not_reach_the_training(tmp_path: Path, number: int, odd: int) -> None:
    _, right = train(tmp_path / "right")
    with flipped(number):
        replay, learned = train(tmp_path / "wrong")
    found = only(replay)
    assert (found.kind, found.step, found.odd_pass) == ("wrong", 2, odd)
    assert found.call is not None
    assert found.call.operator == "Functional.tanh"
    assert found.call.source.startswith(__file__)
    assert (found.call.repetitions, found.call.differing) == (10, 0)
    assert "gradient of second.weight" in found.values
    assert learned == right


def test_wrong_elements_of_any_dtype_are_put_into_words() -> None:
    right = Tensor([1.0, 2.0], ms.bfloat16).asnumpy()
    wrong = Tensor([1.0, 4.0], ms.bfloat16).asnumpy()
    assert mindspore_calls._in_other_bits(wrong, right) == "1 of 2 elements, first [1]: 4 for 2, bit 7"
    assert mindspore_calls._in_other_bits(wrong[:1], right) == "of shape (1,) for (2,)"


@pytest.mark.usefixtures("_early")
@pytest.mark.parametrize(("number", "options"), [(4, {}), (3, {"keep_values": True})])
def test_the_wrong_call_is_a_case_that_the_printed_commands_check(
    pytester: pytest.Pytester, number: int, options: dict[str, Any]
) -> None:
    with flipped(number, bit=25):
        replay, _ = train(Path("repeats"), **options)
    found = only(replay)
    assert found.call is not None
    assert found.call.wrong_values.startswith("1 of 12 elements, first [0, 0]: ")
    assert found.call.wrong_values.endswith(", bit 25")
    right, compared = (check(pytester, *one.split()) for one in re.findall("pytest (--msprobe[^,;]+)", found.reason))
    assert right.exit_code == 0
    assert compared.wrong == {"Functional.tanh.0.forward"}


@pytest.mark.usefixtures("_early")
def test_wrong_values_of_a_first_pass_are_known_by_their_digests(tmp_path: Path) -> None:
    with flipped(3):
        replay, _ = train(tmp_path)
    assert "(keep_values=True keeps them): by their digests, bit 27 of one element" in str(replay)


def wrong_gradient(gradients: Any) -> Any:
    calls = iter(range(1000))

    def once_wrong(x: Tensor) -> Any:
        loss, found = gradients(x)
        if next(calls) == 3:
            found[1].asnumpy()[:1].view(np.int32)[0] ^= 1 << 20
        return loss, found

    return once_wrong


@pytest.mark.usefixtures("_early")
def test_a_gradient_that_the_backward_pass_computed_wrong_is_named(tmp_path: Path) -> None:
    replay, _ = train(tmp_path, wrap=wrong_gradient)
    found = only(replay)
    assert (found.kind, found.odd_pass, found.values) == ("wrong", 2, ["gradient of first.bias"])
    assert "no call that was seen differs" in found.reason


@pytest.mark.usefixtures("_early")
def test_a_compiled_step_is_compared_by_its_results_and_says_so(tmp_path: Path) -> None:
    replay, _ = train(tmp_path, wrap=lambda gradients: wrong_gradient(ms.jit(gradients)))
    assert only(replay).values == ["gradient of first.bias"]
    assert replay.report.compiled
    assert f"compared as wholes, as they are compiled: {replay.report.compiled[0]}" in str(replay)


@pytest.mark.usefixtures("_early")
def test_a_step_in_graph_mode_is_compared_by_its_results_and_says_so(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        replay, _ = train(tmp_path, wrap=wrong_gradient)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert only(replay).values == ["gradient of first.bias"]
    assert "calls not compared: MindSpore is in graph mode" in str(replay)


@pytest.mark.usefixtures("_early")
def test_numbers_that_cannot_be_put_back_are_no_wrong_computation(tmp_path: Path) -> None:
    model = nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.5)).set_train()

    def loss_of(x: Tensor) -> Tensor:
        return model(x).sum()

    compiled = ms.jit(ms.value_and_grad(loss_of, None, model.trainable_params()))
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path)
    for _ in range(3):
        replay(lambda: compiled(Tensor(np.ones((64, 4), np.float32))))
    assert [each.kind for each in replay.report.differences] == ["not_repeatable"]


@pytest.mark.usefixtures("_early")
def test_without_calls_the_step_alone_is_named(tmp_path: Path) -> None:
    with flipped(4):
        replay, _ = train(tmp_path, calls=False)
    assert (only(replay).odd_pass, only(replay).call) == (2, None)
    assert "(calls not compared: calls=False)" in only(replay).reason


@pytest.mark.usefixtures("_early")
def test_a_step_that_differs_ends_the_training_on_request(tmp_path: Path) -> None:
    with flipped(3), pytest.raises(DifferingStepError, match=r"^step 2 \(CPU of .*Functional.tanh"):
        train(tmp_path, on_difference="stop")


def test_a_function_that_changes_parameters_is_refused(tmp_path: Path) -> None:
    model = nn.Dense(2, 2)
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    gradients = ms.grad(lambda x: model(x).sum(), None, model.trainable_params())
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"^the function of replay_step\(\) changes parameters \(weight, bias\); "):
        replay(lambda: optimizer(gradients(Tensor(np.ones((1, 2), np.float32)))))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"optimizer": 1}, "optimizer is 'int'; allowed: None with MindSpore, of which this is not compared"),
        (
            {"data_parallel_group": "hccl"},
            "data_parallel_group is 'str'; allowed: None with MindSpore, of which this is not compared",
        ),
        ({"stateful": [3]}, "stateful is 'int'; allowed: mindspore.Generator, mindspore.nn.Cell"),
    ],
)
def test_what_is_not_offered_for_mindspore_is_refused_in_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        msprobe_hooks.replay_step(nn.Dense(1, 1), every=1, **options)
    assert str(error.value) == problem


def test_a_cell_is_refused_without_the_extension_for_mindspore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "extensions", dict)
    with pytest.raises(ConfigError, match=r"^model is 'Dense'; allowed: a torch.nn.Module without the extension "):
        msprobe_hooks.replay_step(nn.Dense(1, 1), every=1)


RANKS = """
import sys
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_rank, init

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
init("mccl")
if len(sys.argv) == 1:
    raise SystemExit

import msprobe_hooks
from msprobe_hooks.extensions.repeated_steps import mindspore_steps
from tests.mindspore.test_repeated_steps import X, Plain, flipped, wrong_gradient

mindspore_steps._UNWATCHED_ON_CPU = 2
folder, fault = sys.argv[1:]
rank, reduce = get_rank(), ops.AllReduce()
ms.set_seed(0)
model = Plain()
optimizer = nn.Adam(model.trainable_params(), 0.01)
gradients = ms.value_and_grad(lambda x: ops.square(model(x)).sum(), None, model.trainable_params())
if fault == "gradient" and rank == 1:
    gradients = wrong_gradient(gradients)
replay = msprobe_hooks.replay_step(model, every=1, folder=f"{folder}/repeats")


def forward_backward():
    loss, found = gradients(Tensor(X + rank))
    return loss, tuple(reduce(one) / 2 for one in found)


with flipped(4 if fault == "tanh" and rank == 1 else 999):
    for _ in range(4):
        optimizer(replay(forward_backward)[1])
with open(f"{folder}/learned{rank}", "wb") as file:
    file.write(b"".join(one.asnumpy().tobytes() for one in model.get_parameters()))
"""


def run_ranks(folder: Path, fault: str) -> tuple[list[Difference], list[Difference], bytes]:
    """Return what differs on two data-parallel ranks, of which the second has a fault, and what the first learned."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": port, "MS_WORKER_NUM": "2", "GLOG_v": "3"}
    worker = [sys.executable, "-c", RANKS, str(folder), fault]
    with subprocess.Popen(
        [sys.executable, "-c", RANKS], env=os.environ | variables | {"MS_ROLE": "MS_SCHED"}
    ) as leader:
        workers = [
            subprocess.Popen(worker, env=os.environ | variables | {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank)})
            for rank in range(2)
        ]
        assert [one.wait(120) for one in workers] == [0, 0]
        leader.kill()
    reports = [json.loads((folder / f"repeats/repeats{rank}.json").read_text())["differences"] for rank in range(2)]
    first, second = (msgspec.convert(one, list[Difference]) for one in reports)
    return first, second, (folder / "learned0").read_bytes()


@pytest.mark.slow
@pytest.mark.nightly
def test_the_rank_that_computes_wrong_is_named_and_its_values_reach_no_rank(tmp_path: Path) -> None:
    *none, right = run_ranks(tmp_path / "right", "")
    assert none == [[], []]
    (received,), (wrong,), learned = run_ranks(tmp_path / "tanh", "tanh")
    assert (received.kind, wrong.kind, wrong.odd_pass) == ("received", "wrong", 2)
    assert wrong.call is not None
    assert wrong.call.operator == "Functional.tanh"
    assert learned == right
    # Calls of the backward pass are not seen: the first call that differs comes after the ranks' exchange.
    (first,), (second,), learned = run_ranks(tmp_path / "gradient", "gradient")
    for found in (first, second):
        assert (found.kind, found.odd_pass) == ("not_repeatable", 2)
        assert "which rank has computed it is not known" in found.reason
    assert learned == right
