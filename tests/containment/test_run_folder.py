"""What killed runs leave in the temporary directory is cleared by the next run, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_msprobe.containment.run_folder import RunFolder, clear_orphans


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a temporary directory of one's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def orphan() -> Path:
    """Leave the folder of a process that was killed."""
    code = (
        "import os; from pytest_msprobe.containment.run_folder import RunFolder\n"
        "folder = RunFolder.make(); folder.post('alone', 'dump', 'record'); print(folder.path, flush=True); os._exit(9)"
    )
    environment = os.environ | {"TMPDIR": tempfile.gettempdir()}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, check=False)
    return Path(done.stdout.strip())


def test_the_folder_of_a_killed_run_is_cleared_and_that_of_a_living_one_stays() -> None:
    left, living = orphan(), RunFolder.make()
    assert left.is_dir()
    clear_orphans()
    assert not left.exists()
    assert living.path.is_dir()
    living.remove()
    assert not living.path.exists()


def test_neither_links_nor_what_is_no_folder_of_a_run_is_touched(temporary: Path) -> None:
    kept = temporary / "kept"
    kept.mkdir()
    (kept / "owner").touch()
    (temporary / "pytest-msprobe-link").symlink_to(kept)
    (temporary / "pytest-msprobe-file").touch()
    without_owner = temporary / "pytest-msprobe-of-somebody"
    without_owner.mkdir()
    (without_owner / "data").touch()
    linked_owner = temporary / "pytest-msprobe-linked"
    linked_owner.mkdir()
    (linked_owner / "owner").symlink_to(kept / "owner")
    clear_orphans()
    for path in (kept / "owner", temporary / "pytest-msprobe-link", temporary / "pytest-msprobe-file"):
        assert path.exists()
    assert (without_owner / "data").exists()
    assert linked_owner.exists()


def test_links_within_an_orphan_are_deleted_and_not_followed(temporary: Path) -> None:
    left, outside = orphan(), temporary / "outside"
    outside.mkdir()
    (outside / "data").touch()
    (left / "link").symlink_to(outside)
    clear_orphans()
    assert not left.exists()
    assert (outside / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_folder_of_another_user_stays() -> None:
    left = orphan()
    os.chown(left, 65534, 65534)
    clear_orphans()
    assert left.is_dir()
