"""The flow of a run whose tensors are in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.graphs.data_flow import find_flow
from tests.support.dumps.containers import KINDS, dump_of, every_kind, recorded
from tests.support.forked import Forked


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of a recorded run of each kind."""
    return every_kind(tmp_path_factory.mktemp("runs"))


def test_a_graph_has_the_same_flow(runs: dict[str, Path]) -> None:
    flows = [[*find_flow(read_dump(dump_of(runs[kind])), lambda name: None)] for kind in KINDS]
    assert len(flows[0]) > 5
    assert flows[0] == flows[1] == flows[2]


def test_without_the_codecs_library_the_command_says_what_to_install(forked: Forked, tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['zstandard'] = None\nfrom pytest_msprobe.commands.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    recorded(tmp_path / "run", "compressed")
    reported = forked.run(program, tmp_path, "graph", str(dump_of(tmp_path / "run")), "--html", "out.html")
    assert "zstandard is not installed; pip install 'pytest-msprobe[compression]'" in reported.stdout + reported.stderr
    assert "Traceback" not in reported.stderr
