"""Two recorded runs to compare: real ones, and small ones that a test writes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# An inner run in this process must find these loaded: pytester drops what an inner run loads, and torch cannot be
# loaded twice.
import torch  # noqa: F401

import pytest_msprobe.modes.compare.files  # noqa: F401
from msprobe_hooks.dump.reader import Dump, read_dump
from pytest_msprobe.modes.compare.pairs import Pair
from pytest_msprobe.modes.compare.policy import load_policy

Json = dict[str, Any]
DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Leave hypothesis out of inner runs: it would be loaded, slowly, by each of them."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack real dumps: per model one of an unchanged run and some of runs with one change, and what is true."""
    folder = tmp_path_factory.mktemp("runs")
    with tarfile.open(DATA / "compared_runs.tar.xz") as archive:
        for member in archive.getmembers():
            assert not member.name.startswith(("/", ".."))
            archive.extract(member, folder, set_attrs=False, **_filter())
    return folder / "compared_runs"


def _filter() -> dict[str, Any]:
    return {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@pytest.fixture
def tensor() -> Callable[..., Json]:
    """Make the element of a tensor."""
    return _tensor


@pytest.fixture
def call() -> Callable[..., Json]:
    """Make a forward record."""
    return _call


def _tensor(*shape: int, dtype: str = "torch.float32", at: float = 1.0, **fields: Any) -> Json:
    """Return the element of a tensor with statistics around ``at``."""
    statistics = {"Max": at, "Min": -at, "Mean": at / 4, "Norm": 2 * at, "requires_grad": False}
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape)} | statistics | fields


def _call(*args: Any, out: Any = None, **kwargs: Any) -> Json:
    """Return a forward record; the output defaults to a tensor like the first argument."""
    return {"input_args": list(args), "input_kwargs": kwargs, "output": [args[0] if out is None else out]}


@dataclass(frozen=True)
class Runs:
    """Writes the dumps of a target and a golden run below one folder."""

    folder: Path

    def write(self, side: str, records: Json, **top: Any) -> Path:
        path = self.folder / side / "dump.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        envelope = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        path.write_text(json.dumps(envelope | top | {"data": records}, indent=1))
        return path

    def both(self, target: Json, golden: Json, **top: Any) -> tuple[Path, Path]:
        return self.write("target", target, **top), self.write("golden", golden, **top)

    def dumps(self, target: Json, golden: Json, **top: Any) -> tuple[Dump, Dump]:
        ours, theirs = self.both(target, golden, **top)
        return read_dump(ours), read_dump(theirs)

    def pair(self, target: Json, golden: Json, policy: str = "default", **options: Any) -> Pair:
        ours, theirs = self.dumps(target, golden)
        return Pair(0, ours, theirs, policy=load_policy(policy), **options)

    def construct(self, side: str, parents: Json) -> None:
        (self.folder / side / "construct.json").write_text(json.dumps(parents))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return a writer of runs."""
    return Runs(tmp_path)


@pytest.fixture
def compare(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run pytest on two dumps, in this process unless ``apart`` says otherwise."""

    def run(target: Path, golden: Path, *arguments: str, apart: bool = False) -> pytest.RunResult:
        invoke = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return invoke("--msprobe-compare", str(target), "--msprobe-golden", str(golden), *arguments)

    return run
