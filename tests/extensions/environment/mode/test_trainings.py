"""Real trainings started twice: what was changed is named, and equal starts are equal."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.nightly import nightly_but
from tests.support.trainings.started import CONVOLUTIONS, TRANSFORMER, start

Check = Callable[..., Any]

# A distribution that only one start has installed; what else changes with it is the path.
_METADATA = "Metadata-Version: 2.1\nName: datasets\nVersion: 3.0\n"

# Per script and change: the arguments, and what is named first of all.
_CHANGED = {
    "transformer": {
        "hyperparameter": (["--lr=0.2"], "arguments/lr"),
        "seed": (["--seed=8"], "seeds/torch.manual_seed"),
        "order": (["--order=2"], "batches/step0/kwargs.input_ids"),
        "weight": (["--nudge"], "weights/step0/head.weight"),
    },
    "convolutions": {
        "hyperparameter": (["lr=0.2"], "arguments/lr"),
        "seed": (["seed=4"], "seeds/torch.manual_seed"),
        "order": (["order=1"], "batches/step0/args.0"),
        "weight": (["nudge=1"], "weights/step0/4.bias"),
    },
}
_SCRIPTS = {"transformer": TRANSFORMER, "convolutions": CONVOLUTIONS}
# A later one of the same name counts.
_GIVEN = {"transformer": ["--lr=0.1", "--seed=7", "--order=1"], "convolutions": ["lr=0.1"]}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Start a script as it is, once."""
    return cache(lambda script: start(tmp_path_factory.mktemp("golden") / script, _SCRIPTS[script], *_GIVEN[script]))


@pytest.fixture
def compare(check: Check, tmp_path: Path, golden: Callable[[str], Path]) -> Check:
    """Start a script with other arguments or variables and compare that with how it is."""

    def compare(script: str, *arguments: str, **variables: str) -> Any:
        target = start(tmp_path / "target", _SCRIPTS[script], *_GIVEN[script], *arguments, **variables)
        assert "deadbeef" not in (target / "rank0.json").read_text()
        return check(f"--msprobe-environment={target}", f"--msprobe-golden={golden(script)}")

    return compare


@pytest.mark.slow
@pytest.mark.parametrize("script", nightly_but(_SCRIPTS, "transformer"))
def test_equal_starts_are_equal(compare: Check, tmp_path: Path, golden: Callable[[str], Path], script: str) -> None:
    assert "the two environments are equal" in compare(script).output
    assert (tmp_path / "target/loss").read_text() == (golden(script).parent / "loss").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "change"),
    nightly_but(
        [(script, each) for script in _CHANGED for each in _CHANGED[script]],
        ("transformer", "weight"),
    ),
)
def test_what_was_changed_is_named(compare: Check, script: str, change: str) -> None:
    arguments, named = _CHANGED[script][change]
    wrong = compare(script, *arguments).wrong
    assert named in wrong
    # All else is what follows from it: from the second step on, or what was said of it on the command line.
    before = {name for name in wrong if "/step1/" not in name and not name.startswith("arguments/")}
    sections = {name.partition("/")[0] for name in before}
    followed = {
        "hyperparameter": set(),
        "seed": {"seeds", "batches", "weights"},
        "order": {"batches"},
        "weight": {"weights"},
    }
    assert sections <= followed[change]
    assert change != "weight" or before == {named}


@pytest.mark.slow
def test_a_changed_package_is_named(compare: Check, tmp_path: Path) -> None:
    info = tmp_path / "site/datasets-3.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(_METADATA)
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    checked = compare("transformer", PYTHONPATH=path)
    assert checked.wrong == {"packages/datasets"}
    assert "warning: variables/PYTHONPATH" in checked.output
