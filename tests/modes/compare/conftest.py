"""Two recorded runs to compare: real ones, and small ones that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# An inner run in this process must find this loaded: torch cannot be loaded twice.
from tests.support.dumps.compared import Runs, unpack_runs
from tests.support.dumps.dump_files import Json, forward, tensor_around
from tests.support.runs import run_pytest


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack real dumps: per model one of an unchanged run and some of runs with one change, and what is true."""
    return unpack_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def tensor() -> Callable[..., Json]:
    """Make the element of a tensor with statistics around ``at``."""

    def make(*shape: int, **fields: Any) -> Json:
        return tensor_around(*shape, **({"requires_grad": False} | fields))

    return make


@pytest.fixture
def call() -> Callable[..., Json]:
    """Make a forward record; the output defaults to a tensor like the first argument."""

    def make(*args: Any, out: Any = None, **kwargs: Any) -> Json:
        return forward(*args, output=None if out is None else [out], **kwargs)

    return make


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the folder of inner runs where there are any.

    A file next to that folder would make the folder of all tests their root, whose entries each run visits.
    """
    return request.getfixturevalue("pytester").path if "pytester" in request.fixturenames else tmp_path


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return a writer of runs."""
    return Runs(tmp_path)


@pytest.fixture
def three(runs: Any, call: Any, tensor: Any) -> tuple[Path, Path]:
    """Return two runs of three calls of which the second is wrong and the third inherits its error."""
    names = ["Torch.relu.0.forward", "Torch.mm.0.forward", "Torch.tanh.0.forward"]
    golden = {name: call(tensor(4, 4)) for name in names}
    wrong = tensor(4, 4, Max=1.5)
    target = {names[0]: call(tensor(4, 4)), names[1]: call(tensor(4, 4), out=wrong), names[2]: call(wrong, out=wrong)}
    paths: tuple[Path, Path] = runs.both(target, golden)
    return paths


@pytest.fixture
def compare(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run pytest on two dumps, in this process unless ``apart`` says otherwise."""

    def run(target: Path, golden: Path, *arguments: str, apart: bool = False) -> pytest.RunResult:
        sides = ("--msprobe-compare", str(target), "--msprobe-golden", str(golden))
        return run_pytest(pytester, *sides, *arguments, apart=apart)

    return run
