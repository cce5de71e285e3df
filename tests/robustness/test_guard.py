"""The guard of the other tests here notices what it is for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.robustness.guard import nothing_leaves

DEEDS: dict[str, Callable[[Path], object]] = {
    "a file next to the folder": lambda folder: (folder.parent / "neighbour").write_text(""),
    "a link next to the folder": lambda folder: (folder / "inside").rename(folder.parent / "neighbour"),
    "a process": lambda folder: subprocess.run([sys.executable, "-c", ""], check=True),
    "a command": lambda folder: os.system("true"),
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_what_leaves_the_folder_is_noticed(tmp_path: Path, deed: Callable[[Path], object]) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "inside").touch()
    with pytest.raises(AssertionError), nothing_leaves(folder):
        deed(folder)


def test_what_stays_in_the_folder_is_allowed(tmp_path: Path) -> None:
    with nothing_leaves(tmp_path):
        (tmp_path / "file").write_text("")
        (tmp_path / "file").rename(tmp_path / "other")
        (tmp_path / "other").unlink()
