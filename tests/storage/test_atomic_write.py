from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_msprobe.storage.files import atomic_write
from tests.support.hosts.disks import files_of_at_most


def test_a_file_takes_its_place_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("before")
    with atomic_write(path) as part:
        part.write_text("after")
        assert path.read_text() == "before"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report", "after")]


@pytest.mark.parametrize("before", [None, "before"])
def test_a_disk_that_takes_no_more_leaves_what_was_there(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "report"
    if before is not None:
        path.write_text(before)
    with pytest.raises(OSError, match="File too large"), files_of_at_most(100), atomic_write(path) as part:
        part.write_text("x" * 200)
    assert [file.read_text() for file in tmp_path.iterdir()] == ([] if before is None else [before])


def test_what_is_no_plain_file_is_written_to_itself(tmp_path: Path) -> None:
    link = tmp_path / "out"
    link.symlink_to("/dev/null")
    with atomic_write(link) as part:
        assert part == Path("/dev/null")
    assert link.is_symlink()


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_write(tmp_path / "link") as part:
        part.write_text("after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


def test_the_umask_says_who_may_read_a_file(tmp_path: Path) -> None:
    former = os.umask(0o077)
    try:
        with atomic_write(tmp_path / "report") as part:
            part.write_text("x")
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o600


def test_a_circle_of_links_is_refused_by_the_system(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="circle"), atomic_write(tmp_path / "circle" / "report") as part:
        part.write_text("x")
