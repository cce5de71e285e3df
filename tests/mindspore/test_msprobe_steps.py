"""A step recorded here next to the same step recorded by msprobe 26.2.0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ms = pytest.importorskip("mindspore")

from msprobe_hooks import record  # noqa: E402
from tests.corpus.mindspore_step import build  # noqa: E402

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    folder = tmp_path_factory.mktemp("dump")
    net, step, x = build()
    with record(folder, level="mix", model=net, framework="mindspore"):
        step(x)
    return folder / "step0" / "rank", ROOT / "tests" / "data" / "round_trip" / "mindspore-26.2.0"


def load(folder: Path, name: str = "dump.json") -> Json:
    content: Json = json.loads((folder / name).read_text())
    return content


def test_msprobes_records_are_all_there_and_no_others(both: tuple[Path, Path]) -> None:
    ours, theirs = (load(folder)["data"] for folder in both)
    assert ours.keys() == theirs.keys()


def test_msprobes_records_come_in_its_order(both: tuple[Path, Path]) -> None:
    # A cell's own gradients and those of its parameters come by together; which is first is no one's to say.
    ours, theirs = (
        [name for name in load(folder)["data"] if not (name.startswith("Cell") and ".forward" not in name)]
        for folder in both
    )
    assert ours == theirs


def test_msprobes_parents_are_the_same(both: tuple[Path, Path]) -> None:
    ours, theirs = (load(folder, "construct.json") for folder in both)
    assert {name: ours.get(name) for name in theirs} == theirs


def tensors(body: Any) -> Iterator[Json]:
    if isinstance(body, dict) and "shape" in body:
        yield body
    elif isinstance(body, (dict, list)):
        for value in body.values() if isinstance(body, dict) else body:
            yield from tensors(value)


# msprobe lists the gradients of a primitive from the last input to the first, and one for an input that takes none.
OTHER_GRADIENTS = ("Primitive.", "Tensor.__add__.0.backward", "Tensor.__mul__.0.backward")


def test_msprobes_numbers_are_the_same(both: tuple[Path, Path]) -> None:
    ours, theirs = (load(folder)["data"] for folder in both)
    for name, body in theirs.items():
        if "backward" in name and name.startswith(OTHER_GRADIENTS):
            continue
        same_groups = {group: ours[name][group] for group in body}
        for mine, their in zip(tensors(same_groups), tensors(body), strict=True):
            assert (mine["dtype"], mine["shape"]) == (their["dtype"], their["shape"]), name
            for key in ("Max", "Min", "Mean", "Norm"):
                assert mine[key] == pytest.approx(their[key], rel=1e-5, abs=1e-6), (name, key)
