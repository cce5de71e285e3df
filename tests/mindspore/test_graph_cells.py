"""Cells that tell by TensorDump what they take and give, as a graph at level L0 has them do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from msprobe_hooks import ConfigError, record  # noqa: E402
from msprobe_hooks.extensions.mindspore import session  # noqa: E402
from tests.corpus.mindspore_cells import Net, batch, loss_of  # noqa: E402

ROOT = Path(__file__).parents[2]
# What the embedding takes are integers.
IDS = "0.forward.input.0."


@pytest.fixture
def as_a_graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have cells record as in GRAPH_MODE, while they run in PyNative mode, whose TensorDump a CPU has."""
    monkeypatch.setattr(session, "is_pynative", lambda: False)
    monkeypatch.setattr(session, "require_no_graph", lambda: None)
    return


def recorded(folder: Path, steps: int = 1, **options: Any) -> list[dict[str, Any]]:
    """Record steps of the network; return the contents of ``dump.json`` of each."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(0)
    net = Net()
    step = ms.value_and_grad(loss_of(net), None, net.trainable_params())
    with record(folder, level="L0", model=net, framework="mindspore", **options) as running:
        for number in range(steps):
            if number:
                running.step()
            step(batch(number))
    files = sorted(folder.glob("step*/rank/dump.json"))
    return [json.loads(file.read_text()) for file in files]


def values(record: Any) -> Any:
    """Return a record's tensors without what only a call knows: of what gradients are wanted, other arguments."""
    if isinstance(record, dict) and "shape" in record:
        return {key: value for key, value in record.items() if key not in ("requires_grad", "data_name")}
    if isinstance(record, dict):
        return {key: values(one) for key, one in record.items() if key not in ("is_recompute", "details", "n")}
    return [values(one) for one in record if one is not None] if isinstance(record, list) else record


def test_what_cells_show_is_what_hooks_record(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (hooked,) = recorded(tmp_path / "hooked", summary_mode="md5")
    request.getfixturevalue("as_a_graph")
    (reported,) = recorded(tmp_path / "reported", summary_mode="md5")
    expected = {name: body for name, body in hooked["data"].items() if "parameters_grad" not in name}
    assert list(reported["data"]) == list(expected)
    assert {name: values(body) for name, body in reported["data"].items()} == {
        name: values(body) for name, body in expected.items()
    }
    parents = [json.loads((tmp_path / way / "step0/rank/construct.json").read_text()) for way in ("reported", "hooked")]
    assert parents[0] == {name: parents[1][name] for name in parents[0]}


def test_each_step_has_its_own_and_its_tensors(tmp_path: Path, as_a_graph: None) -> None:
    first, second = recorded(tmp_path, steps=2, task="tensor")
    name = "Cell.embedding.Embedding.forward.0"
    for step, dump in enumerate((first, second)):
        file = tmp_path / f"step{step}/rank/dump_tensor_data" / dump["data"][name]["input_args"][0]["data_name"]
        np.testing.assert_array_equal(np.load(file), batch(step).asnumpy())
    assert not list((tmp_path / "step0").glob("**/*_float32_*"))


def test_a_step_that_is_not_wanted_leaves_nothing(tmp_path: Path, as_a_graph: None) -> None:
    (dump,) = recorded(tmp_path, steps=3, step=[1], task="tensor", list=["Embedding"])
    assert list(dump["data"]) == ["Cell.embedding.Embedding.forward.0", "Cell.embedding.Embedding.backward.0"]
    file = tmp_path / "step1/rank/dump_tensor_data/Cell.embedding.Embedding.forward.0.input.0.npy"
    np.testing.assert_array_equal(np.load(file), batch(1).asnumpy())


def test_one_direction_is_recorded_where_it_is_asked_for(tmp_path: Path, as_a_graph: None) -> None:
    (dump,) = recorded(tmp_path, data_mode=["backward"])
    assert dump["data"]
    assert all(".backward." in name for name in dump["data"])


def test_cells_have_their_own_construct_again(tmp_path: Path, as_a_graph: None) -> None:
    net = Net()
    with record(tmp_path, level="L0", model=net, framework="mindspore"):
        assert "construct" in vars(net.first)
    assert "construct" not in vars(net.first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "structure"}, "task is 'structure'; allowed: statistics or tensor in GRAPH_MODE"),
        ({"scope": ["Cell.a.B.forward.0", "Cell.c.D.forward.0"]}, "scope is .*; not supported in GRAPH_MODE"),
    ],
)
def test_settings_without_meaning_for_cells_are_refused(
    tmp_path: Path, as_a_graph: None, options: dict[str, Any], message: str
) -> None:
    with (
        pytest.raises(ConfigError, match=message),
        record(tmp_path, level="L0", model=Net(), framework="mindspore", **options),
    ):
        pass


@pytest.mark.slow
def test_a_graph_shows_what_calls_show_and_a_backend_without_the_kernel_is_one_clear_error(
    tmp_path: Path, as_a_graph: None
) -> None:
    reported = {"MS_DEV_SAVE_GRAPHS": "2", "MS_DEV_SAVE_GRAPHS_PATH": str(tmp_path / "graphs")}
    command = [sys.executable, "-m", "tests.corpus.mindspore_cells", str(tmp_path / "dump")]
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | reported, check=False, capture_output=True, text=True, timeout=600
    )
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "msprobe_hooks.errors.RecordingError: level L0 needs TensorDump in the graph, which this backend lacks "
        "(Unsupported op [TensorDump] on CPU); record at level L1, mix or L2"
    )
    (graph,) = (tmp_path / "graphs").glob("*_validate_*.ir")
    generated = re.findall(r'TensorDump\([^"]*"[^"]*/(\d+\.(?:forward|backward)\.[^"]+\.)"', graph.read_text())
    net = Net()
    with record(tmp_path / "calls", level="L0", model=net, framework="mindspore"):
        ms.value_and_grad(loss_of(net), None, net.trainable_params())(batch(0))[0].asnumpy()
        written = {file.name.split("_float32_")[0] for file in tmp_path.glob("calls/cells_*/*_float32_*")}
    assert {name for name in generated if name != IDS} == written
