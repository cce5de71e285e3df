from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_msprobe.errors import FolderError
from pytest_msprobe.extensions.generate.output_folder import MANIFEST, write_files


def test_text_and_copies_are_written(tmp_path: Path) -> None:
    (tmp_path / "source.pt").write_bytes(b"\0tensor")
    out = tmp_path / "a" / "b"
    assert write_files(out, {"test_x.py": "x\n", "tensors/x.pt": tmp_path / "source.pt"}) == []
    assert (out / "test_x.py").read_text() == "x\n"
    assert (out / "tensors" / "x.pt").read_bytes() == b"\0tensor"
    assert sorted(path.name for path in out.iterdir()) == [MANIFEST, "tensors", "test_x.py"]


def test_what_was_written_is_written_again_and_what_was_there_stays(tmp_path: Path) -> None:
    write_files(tmp_path, {"test_x.py": "one", "test_y.py": "y"})
    assert write_files(tmp_path, {"test_x.py": "two"}) == ["test_y.py"]
    assert (tmp_path / "test_x.py").read_text() == "two"
    assert (tmp_path / "test_y.py").read_text() == "y"


def test_another_file_is_not_overwritten_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "test_y.py").write_text("mine")
    with pytest.raises(FolderError, match=r"test_y\.py: not written by pytest-msprobe generate"):
        write_files(tmp_path, {"test_x.py": "x", "test_y.py": "y"})
    assert [path.name for path in tmp_path.iterdir()] == ["test_y.py"]
    assert (tmp_path / "test_y.py").read_text() == "mine"


def test_a_changed_file_is_not_overwritten(tmp_path: Path) -> None:
    write_files(tmp_path, {"test_x.py": "one"})
    (tmp_path / "test_x.py").write_text("mine")
    with pytest.raises(FolderError, match=r"test_x\.py: changed since it was written"):
        write_files(tmp_path, {"test_x.py": "two"})
    assert (tmp_path / "test_x.py").read_text() == "mine"


def test_other_files_next_to_it_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("mine")
    assert write_files(tmp_path, {"test_x.py": "x"}) == []
    assert (tmp_path / "conftest.py").read_text() == "mine"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    out = tmp_path / "out"
    out.mkdir()
    (out / "test_x.py").symlink_to(tmp_path / "mine")
    with pytest.raises(FolderError, match="not a regular file"):
        write_files(out, {"test_x.py": "x"})


def test_a_linked_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "tensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderError, match="leads out of"):
        write_files(out, {"tensors/x.pt": "x"})
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"files": {}}', b'{"generated_by": "me", "files": {}}', b'{"generated_by": "\xb0"}', b"[" * 5000],
)
def test_another_programs_manifest_is_respected(tmp_path: Path, text: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(FolderError, match=f"{MANIFEST}: not written by"):
        write_files(tmp_path, {"test_x.py": "x"})
    assert (tmp_path / MANIFEST).read_bytes() == text


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        FolderError, match=r"file.*: cannot be written: Not a directory; make it writable, or pass another folder"
    ):
        write_files(tmp_path / "file" / "out", {"test_x.py": "x"})


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no files")
def test_an_unwritable_folder_is_one_error() -> None:
    with pytest.raises(FolderError, match=r"^/proc/.*: cannot be written"):
        write_files(Path("/proc"), {"test_x.py": "x"})


_FULL = """
import signal, resource, sys
from pathlib import Path
from pytest_msprobe.extensions.generate.output_folder import write_files
from pytest_msprobe.errors import FolderError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    write_files(Path(sys.argv[1]), {"test_a.py": "a" * 900, "test_b.py": "b" * 2000})
except FolderError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on the size of files")
def test_a_disk_that_takes_no_more_leaves_whole_files_and_a_later_run_goes_on(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "test_b.py: cannot be written: File too large" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["test_a.py"]
    write_files(tmp_path, {"test_a.py": "a" * 900, "test_b.py": "b" * 2000})
    assert (tmp_path / "test_b.py").stat().st_size == 2000


def test_the_umask_says_who_may_read_what_is_generated(tmp_path: Path) -> None:
    former = os.umask(0o077)
    try:
        write_files(tmp_path, {"test_a.py": "a"})
    finally:
        os.umask(former)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
