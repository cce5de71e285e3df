from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.dump.recording_paths import by_stage, folder_of_run, stages_of


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("run/step0/rank0/dump.json", ""),
        ("run/step_1/actor_update/step0/rank0/dump.json", "step_1/actor_update"),
        ("run/step_1/actor_update/rank_3/step0/rank3/dump.json", "step_1/actor_update"),
        ("run/step_1/actor_update/rank_3/step0/rank/dump.json", "step_1/actor_update/rank_3"),
        ("step_7/run/step_1/actor/step0/proc12/debug.json", "step_1/actor"),
        ("run/step_1/rank_0/Net/0/1/file.npy", ""),
    ],
)
def test_a_stage_is_named_from_the_step_of_the_training_on(path: str, stage: str) -> None:
    assert stages_of([Path(path)]) == {Path(path): stage}


def test_folders_with_equal_numbers_are_stages_below_the_folder_that_they_share() -> None:
    one, other = (Path(f"run/{stage}/step0/rank0/dump.json") for stage in ("generate", "log_prob"))
    assert stages_of([one, other]) == {one: "generate", other: "log_prob"}


def test_folders_with_different_numbers_are_no_stages() -> None:
    paths = [Path(f"run/host{rank}/step0/rank{rank}/dump.json") for rank in (0, 1)]
    assert by_stage(paths) == {"": paths}


def test_the_folder_of_a_run_is_above_the_step_of_the_training() -> None:
    assert folder_of_run(Path("run/step_1/actor")) == Path("run")
    assert folder_of_run(Path("run/step1")) == Path("run/step1")
