"""Showing the tensors of containers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from tests.support.dumps.containers import CONTAINERS, KINDS, dump_of, every_kind, recorded, tensor_folder
from tests.support.forked import Forked


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of a recorded run of each kind."""
    return every_kind(tmp_path_factory.mktemp("runs"))


def test_what_a_record_held_is_shown_alike(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for kind in KINDS:
        assert main(["show", f"{dump_of(runs[kind])}::Functional.linear.0.forward"]) == 0
        texts.append(capsys.readouterr().out.replace(str(runs[kind]), ""))
    assert "float32" in texts[0]
    assert texts[0] == texts[1] == texts[2]


def test_the_tensors_of_a_container_are_shown_as_they_were(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for kind in CONTAINERS:
        assert main(["show", str(tensor_folder(runs[kind]) / "0.safetensors")]) == 0
        shown = capsys.readouterr().out.replace(str(runs[kind]), "")
        # A container has its tensors in the order in which they are stored.
        texts.append(sorted(re.split(r"^(?=\S)", shown, flags=re.MULTILINE)))
    assert re.search(r"Torch\.complex\.0\.forward\.output\.0 +complex64 +\[50, 4\]", str(texts[0]))
    assert texts[0] == texts[1]


def test_without_the_codecs_library_the_command_says_what_to_install(forked: Forked, tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['zstandard'] = None\nfrom pytest_msprobe.commands.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    recorded(tmp_path / "run", "compressed")
    reported = forked.run(program, tmp_path, "show", f"{dump_of(tmp_path / 'run')}::Functional.linear.0.forward")
    assert "zstandard is not installed; pip install 'pytest-msprobe[compression]'" in reported.stdout + reported.stderr
    assert "Traceback" not in reported.stderr
