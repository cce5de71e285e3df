"""A watch's side of a spool folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pytest_msprobe.errors import FolderError
from pytest_msprobe.extensions.follow.folder import FailedLimits, SpoolFolder, new_file
from tests.support.dumps.dump_files import SOFTMAX, write_dump

Opened = Callable[..., SpoolFolder]
MANY = FailedLimits(steps=100, bytes=2**30)


def step(folder: Path, number: int, rank: str = "rank") -> Path:
    return write_dump(folder / f"step{number}" / rank, SOFTMAX).parent


def kept(folder: Path) -> list[str]:
    return sorted(path.parents[1].name for path in (folder / "failed").glob("step*/rank*/dump.json"))


@pytest.fixture
def opened() -> Iterator[Callable[..., SpoolFolder]]:
    """Opens folders as a watch does, and closes them after the test."""
    with ExitStack() as folders:
        yield lambda path, limits=MANY: folders.enter_context(closing(SpoolFolder(path, limits)))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "output"
    path.write_text("pytest --msprobe-dump=/data/spool/step1/rank/dump.json::Torch.mm.0.forward")
    return path


def test_only_whole_steps_wait_in_the_order_of_their_numbers(opened: Opened, tmp_path: Path) -> None:
    steps = [step(tmp_path, 10), step(tmp_path, 2, "rank10"), step(tmp_path, 2, "rank9")]
    write_dump(tmp_path / ".recording" / "rank" / "step1" / "rank", SOFTMAX)
    write_dump(tmp_path / "failed" / "step1" / "rank", SOFTMAX)
    (tmp_path / "step3" / "rank").mkdir(parents=True)
    assert opened(tmp_path).waiting() == [steps[2], steps[1], steps[0]]


def test_a_second_watch_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    first = SpoolFolder(tmp_path, MANY)
    with pytest.raises(FolderError, match="another pytest-msprobe follow uses this folder"):
        SpoolFolder(tmp_path, MANY)
    first.close()
    SpoolFolder(tmp_path, MANY).close()


def test_of_a_step_that_is_removed_nothing_is_left_and_its_other_ranks_stay(opened: Opened, tmp_path: Path) -> None:
    gone, other = step(tmp_path, 1, "rank0"), step(tmp_path, 1, "rank1")
    folder = opened(tmp_path)
    folder.remove(gone)
    assert folder.waiting() == [other]
    folder.remove(other)
    assert not (tmp_path / "step1").exists()


def test_what_is_kept_of_a_step_that_failed_names_the_place_where_it_is_kept(
    opened: Opened, tmp_path: Path, output: Path
) -> None:
    spool = tmp_path / "spool"
    opened(step(spool, 1).parents[1]).keep(spool / "step1" / "rank", output)
    text = (spool / "failed" / "step1" / "rank" / "pytest.txt").read_text()
    assert "--msprobe-dump=/data/spool/failed/step1/rank/dump.json" in text


def test_the_oldest_of_too_many_steps_that_failed_leave(opened: Opened, tmp_path: Path, output: Path) -> None:
    folder = opened(tmp_path, FailedLimits(steps=2, bytes=2**30))
    # The number of a step says nothing of when it failed.
    gone = [folder.keep(step(tmp_path, number), output) for number in (9, 1, 5)]
    assert gone == [0, 0, 1]
    assert kept(tmp_path) == ["step1", "step5"]


def test_steps_that_failed_leave_where_they_take_too_much_but_the_last(
    opened: Opened, tmp_path: Path, output: Path
) -> None:
    folder = opened(tmp_path, FailedLimits(steps=100, bytes=1))
    assert [folder.keep(step(tmp_path, number), output) for number in (1, 2)] == [0, 1]
    assert kept(tmp_path) == ["step2"]


def test_a_step_that_failed_takes_the_place_of_that_of_a_former_run(
    opened: Opened, tmp_path: Path, output: Path
) -> None:
    (step(tmp_path / "failed", 1) / "of_a_former_run").touch()
    assert opened(tmp_path).keep(step(tmp_path, 1), output) == 0
    assert not (tmp_path / "failed" / "step1" / "rank" / "of_a_former_run").exists()


def test_the_output_of_a_step_that_failed_is_not_written_through_a_link(
    opened: Opened, tmp_path: Path, output: Path
) -> None:
    failed, other = step(tmp_path, 1), tmp_path / "other.txt"
    other.write_text("precious")
    (failed / "pytest.txt").symlink_to(other)
    folder = opened(tmp_path)
    folder.keep(failed, output)
    assert other.read_text() == "precious"
    assert (tmp_path / "failed/step1/rank/pytest.txt").read_text() == output.read_text()


def test_a_new_file_takes_the_place_of_a_link(tmp_path: Path) -> None:
    other, link = tmp_path / "other.txt", tmp_path / "link.txt"
    other.write_text("precious")
    link.symlink_to(other)
    with new_file(link) as file:
        file.write(b"new")
    assert (other.read_text(), link.read_text(), link.is_symlink()) == ("precious", "new", False)


def test_a_new_file_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "pytest.txt"
    (path / "below").mkdir(parents=True)
    with new_file(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("linked", ["step1", "step1/rank"])
def test_a_step_that_is_a_link_is_left_alone(opened: Opened, tmp_path: Path, linked: str) -> None:
    spool = tmp_path / "spool"
    whole, outside = step(spool, 2), step(tmp_path / "outside", 1)
    link = spool / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside if linked.endswith("rank") else outside.parent)
    folder = opened(spool)
    assert (folder.waiting(), folder.linked()) == ([whole], [spool / "step1" / "rank"])


@pytest.mark.parametrize("name", [".follow", "failed", ".follow/lock"])
def test_a_link_where_files_are_written_is_refused(tmp_path: Path, name: str) -> None:
    spool, outside = tmp_path / "spool", tmp_path / "outside"
    outside.mkdir()
    link = spool / name
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file" if name.endswith("lock") else outside)
    with pytest.raises(FolderError, match=r"is a link|cannot be written"):
        SpoolFolder(spool, MANY)
    assert list(outside.iterdir()) == []


def test_a_link_that_was_being_removed_is_cleared_away(opened: Opened, tmp_path: Path) -> None:
    spool, outside = tmp_path / "spool", step(tmp_path / "outside", 1)
    gone = step(spool, 2)
    (spool / ".follow").mkdir()
    (spool / ".follow" / "removed").symlink_to(outside)
    opened(spool).remove(gone)
    assert (gone.exists(), (outside / "dump.json").exists()) == (False, True)
