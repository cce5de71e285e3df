"""A folder of kernels, and a run that checks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps.static_graphs import GraphFolder
from tests.support.runs import Checked, check


@pytest.fixture
def graph(tmp_path: Path) -> GraphFolder:
    return GraphFolder(tmp_path / "graph")


@pytest.fixture
def run(pytester: pytest.Pytester, graph: GraphFolder) -> Callable[..., Checked]:
    def checked(*options: str, apart: bool = False) -> Checked:
        return check(pytester, "--msprobe-dump", graph.folder, *options, apart=apart)

    return checked
