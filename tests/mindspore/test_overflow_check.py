"""Looking for inf and nan while MindSpore runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint  # noqa: E402

from msprobe_hooks import record  # noqa: E402
from msprobe_hooks.dump.reader import read_dump  # noqa: E402
from msprobe_hooks.extensions.overflow.anomaly import AnomalyKind, find_scene, read_record_io  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def found(folder: Path, program: Callable[[], Any], **options: Any) -> list[str]:
    """Look for overflow in a program; return the calls in which it arises."""
    with record(folder, framework="mindspore", task="overflow_check", **({"overflow_nums": -1} | options)) as session:
        program()
    return list(session.summary.overflows)


def chain() -> None:
    x = Tensor(np.array([1.0, 200.0], np.float32))
    mint.sum(mint.mul(mint.exp(x), 2.0))
    mint.log(mint.zeros((2,)))


def test_only_the_calls_in_which_it_arises_are_written_with_their_tensors(tmp_path: Path) -> None:
    assert found(tmp_path, chain) == ["Mint.exp.0.forward", "Mint.log.0.forward"]
    (dump,) = tmp_path.rglob("dump.json")
    assert list(json.loads(dump.read_text())["data"]) == ["Mint.exp.0.forward", "Mint.log.0.forward"]
    written = np.load(dump.parent / "dump_tensor_data/Mint.exp.0.forward.input.0.npy")
    assert written.tolist() == [1.0, 200.0]


def test_a_program_without_overflow_leaves_no_files(tmp_path: Path) -> None:
    assert found(tmp_path / "dump", lambda: mint.exp(Tensor([1.0]))) == []
    assert list((tmp_path / "dump").iterdir()) == []


def test_a_gradient_in_which_it_arises_is_written_after_its_call(tmp_path: Path) -> None:
    gradient = ms.grad(lambda x: mint.sum(mint.sqrt(x)))
    assert found(tmp_path, lambda: gradient(Tensor([0.0, 1.0]))) == ["Mint.sqrt.0.backward"]
    (dump,) = tmp_path.rglob("dump.json")
    assert list(json.loads(dump.read_text())["data"]) == ["Mint.sqrt.0.forward", "Mint.sqrt.0.backward"]


def test_the_same_calls_are_found_as_in_a_dump_of_all_statistics(tmp_path: Path) -> None:
    def program() -> None:
        chain()
        ms.grad(lambda x: mint.sum(mint.exp(mint.mul(x, 300.0))))(Tensor([1.0, 0.0]))

    with record(tmp_path / "all", framework="mindspore"):
        program()
    (path,) = (tmp_path / "all").rglob("dump.json")
    dump = read_dump(path)
    scenes = {name: find_scene(read_record_io(dump, name)) for name in dump.records}
    arising = [name for name, finding in scenes.items() if finding is not None and finding.scene is AnomalyKind.ARISES]
    assert len(arising) > 2
    assert found(tmp_path / "found", program) == arising


def test_an_input_that_was_written_over_is_marked_and_not_written(tmp_path: Path) -> None:
    x = Tensor(np.array([3e38, 2.0], np.float32))
    assert found(tmp_path, lambda: x.add_(x)) == ["Tensor.add_.0.forward"]
    (dump,) = tmp_path.rglob("dump.json")
    (body,) = json.loads(dump.read_text())["data"].values()
    assert body["details"]["input.0"] == {"values": "overwritten"}
    assert body["input_args"][0]["Max"] is None
