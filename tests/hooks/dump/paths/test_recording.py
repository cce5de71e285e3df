from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.recording_paths import StepRank, find_dumps, rank_of, recording_folder, step_rank
from msprobe_hooks.errors import DumpError


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("d/step3/rank12/dump.json", StepRank(3, 12)),
        ("d/step0/rank/dump.json", StepRank(0, None)),
        ("d/step0/proc17/dump.json", StepRank(0, None)),
        ("d/rank1/dump.json", StepRank(None, 1)),
        ("step9/old/step2/x/rank4/dump.json", StepRank(2, 4)),
        ("steps3/myrank4/dump.json", StepRank(None, None)),
        ("rank5/step1/rank/dump.json", StepRank(1, 5)),
    ],
)
def test_the_nearest_numbered_folders_show_step_and_rank(path: str, reported: StepRank) -> None:
    assert step_rank(Path(path)) == reported


@given(step=st.integers(0, 10**6), rank=st.integers(0, 10**6))
def test_where_a_recording_writes_shows_its_step_and_rank(step: int, rank: int) -> None:
    folder = recording_folder(step, rank)
    assert step_rank(folder / "dump.json") == (step, rank)
    assert rank_of(folder) == rank


def test_a_program_that_is_not_distributed_writes_a_rank_without_number() -> None:
    assert recording_folder(0, None) == Path("step0/rank")
    assert rank_of(Path("step0/rank")) == 0


@pytest.mark.parametrize("folder", ["proc17", "step0", "ranks", "rank-1", "rank1a", "Rank1"])
def test_a_folder_of_another_name_shows_no_rank(folder: str) -> None:
    assert rank_of(Path(folder)) is None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (StepRank(1, 2), "step 1 and rank 2"),
        (StepRank(rank=0), "rank 0"),
        (StepRank(step=4), "step 4"),
        (StepRank(), "no numbered step or rank"),
    ],
)
def test_step_and_rank_are_put_into_words(place: StepRank, words: str) -> None:
    assert str(place) == words


def test_dumps_are_found_in_the_order_of_steps_and_ranks(tmp_path: Path) -> None:
    wanted = [tmp_path / recording_folder(step, rank) for step in (2, 10) for rank in (0, 1, 11)]
    for folder in reversed(wanted):
        folder.mkdir(parents=True)
        (folder / "dump.json").touch()
    assert find_dumps(tmp_path) == [folder / "dump.json" for folder in wanted]


def test_a_folder_without_dumps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"no dump\.json in this folder or below it"):
        find_dumps(tmp_path)
