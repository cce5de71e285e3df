"""Eight networks written in MindSpore and in PyTorch with the same weights: equal, or with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from msprobe_hooks import record  # noqa: E402
from msprobe_hooks.dump.names import is_forward  # noqa: E402
from msprobe_hooks.dump.reader import Dump, read_dump  # noqa: E402
from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions  # noqa: E402
from pytest_msprobe.extensions.across_frameworks.translation import Mappings, composed_runs, translation  # noqa: E402
from pytest_msprobe.modes.compare.dump_pair import DumpPair  # noqa: E402
from pytest_msprobe.modes.compare.judging.policy import load_policy  # noqa: E402
from tests.corpus.two_frameworks import in_mindspore, in_pytorch  # noqa: E402
from tests.corpus.two_frameworks.weights import Fault  # noqa: E402

pytestmark = pytest.mark.slow

NETWORKS = ["mlp", "cnn", "attention", "lstm", "embedding", "accumulation", "mixed precision", "gpt"]
LEVELS = ["L0", "L1", "mix"]
# What MindSpore calls the layer that is changed, by the network; at L1 the primitive.
CHANGED = {"cnn": ("conv2.Conv2d", "conv2d.Conv2D.1"), "attention": ("o.Dense", "matmul.MatMul.3")}
CHANGED |= {"gpt": ("blocks.1.down.Dense", "matmul.MatMul.11")}
DENSE = ("down.Dense", "matmul.MatMul.1")
NORMS = {"cnn": ("bn.BatchNorm2d", "bn_train.BatchNorm.0"), "attention": ("norm.LayerNorm", "layer_norm.LayerNorm.0")}
NORMS |= {"gpt": ("blocks.1.norm.LayerNorm", "layer_norm.LayerNorm.3")}
ACTIVATIONS = {"cnn": "Primitive.tanh.Tanh.0", "attention": "Functional.sigmoid.0", "embedding": "Functional.relu.0"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield tmp_path_factory.mktemp("networks")
    _recorded.cache_clear()


@cache
def _recorded(folder: Path, framework: str, network: str, level: str, fault: Fault) -> Dump:
    make = in_mindspore.network if framework == "mindspore" else in_pytorch.network
    model, step = make(network, fault) if framework == "mindspore" else make(network)
    place = folder / f"{framework}-{network}-{level}-{fault}"
    with record(place, level=level, model=model, framework=framework):  # type: ignore[arg-type]
        step()
    return read_dump(place / "step0" / "rank" / "dump.json")


def pairs(folder: Path, network: str, level: str, fault: Fault = "") -> list[DumpPair]:
    """MindSpore's run, with a fault, compared with PyTorch's, and the other way round."""
    target = _recorded(folder, "mindspore", network, level, fault)
    golden = _recorded(folder, "pytorch", network, level, "")
    found = []
    for one, other in ((target, golden), (golden, target)):
        ours, theirs, names = composed_runs(one, other, Mappings())
        meeting = translation(ours, theirs, Mappings(), AcrossOptions(), names)
        found.append(DumpPair(0, ours, theirs, policy=load_policy("default"), translation=meeting))
    return found


def first_culprit(pair: DumpPair) -> str | None:
    """The MindSpore record of the first forward call that differs with no cause before it."""
    forward = (pair.compare(name) for name in pair.orders if is_forward(name))
    call = next((call for call in forward if call.outcome in ("warn", "fail") and call.cause == "culprit"), None)
    if call is None:
        return None
    return call.target if pair.target.framework == "mindspore" else call.golden


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("network", NETWORKS)
def test_equal_networks_have_no_call_that_differs(folder: Path, network: str, level: str) -> None:
    for pair in pairs(folder, network, level):
        calls = [pair.compare(name) for name in pair.orders]
        assert {call.record: call.reason for call in calls if call.outcome in ("warn", "fail")} == {}
        assert any(call.outcome == "pass" and not is_forward(call.record) for call in calls)


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "lstm"])
def test_most_calls_of_equal_networks_have_a_partner(folder: Path, network: str, level: str) -> None:
    for pair in pairs(folder, network, level):
        assert 1 - pair.unmatched / len(pair.orders) > 0.85


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fault", ["weight", "bias"])
@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "lstm"])
def test_a_changed_layer_is_the_first_culprit(folder: Path, network: str, fault: Fault, level: str) -> None:
    cell, primitive = CHANGED.get(network, DENSE)
    expected = f"Cell.{cell}.forward.0" if level == "L0" else f"Primitive.{primitive}.forward"
    assert [first_culprit(pair) for pair in pairs(folder, network, level, fault)] == [expected] * 2


@pytest.mark.parametrize("level", LEVELS)
def test_a_changed_weight_of_a_recurrent_layer_is_the_first_culprit(folder: Path, level: str) -> None:
    found = [first_culprit(pair) for pair in pairs(folder, "lstm", level, "weight")]
    expected = "Cell.lstm.LSTM.forward.0" if level == "L0" else "Primitive.LSTM.LSTM.0.forward"
    assert found == [expected] * 2


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_recurrent_layer_is_one_call(folder: Path, level: str) -> None:
    for pair in pairs(folder, "lstm", level):
        partners = {frozenset((match.target, match.golden)) for match in pair.matching.matches}
        for direction in ("forward", "backward"):
            assert {f"Primitive.LSTM.LSTM.0.{direction}", f"VF.lstm.0.{direction}"} in partners


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("network", NORMS)
def test_another_epsilon_is_the_first_culprit(folder: Path, network: str, level: str) -> None:
    cell, primitive = NORMS[network]
    expected = f"Cell.{cell}.forward.0" if level == "L0" else f"Primitive.{primitive}.forward"
    assert [first_culprit(pair) for pair in pairs(folder, network, level, "eps")] == [expected] * 2


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "lstm"])
def test_another_activation_is_the_first_culprit(folder: Path, network: str, level: str) -> None:
    record = ACTIVATIONS.get(network, "Functional.tanh.0")
    is_cell = network == "cnn" and level == "mix"
    expected = {f"{record}.forward"} | ({"Cell.relu.Tanh.forward.0"} if is_cell else set())
    assert {first_culprit(pair) for pair in pairs(folder, network, level, "activation")} <= expected
