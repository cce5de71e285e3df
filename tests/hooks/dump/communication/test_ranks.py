from __future__ import annotations

from pathlib import Path

from msprobe_hooks.dump.communication.jsonl import find_steps
from msprobe_hooks.dump.reader import Dump


def folders(*paths: str) -> list[tuple[str, list[int]]]:
    dumps = [Dump(Path(path, "dump.json"), "statistics", "L1", "pytorch", {}) for path in paths]
    return [(step.folder.as_posix(), list(step.ranks)) for step in find_steps(dumps)]


def test_the_ranks_of_a_step_belong_together() -> None:
    assert folders("d/step0/rank10", "d/step0/rank2", "d/step1/rank2") == [("d/step0", [2, 10]), ("d/step1", [2])]


def test_a_rank_without_a_number_is_rank_0() -> None:
    assert folders("d/step0/rank") == [("d/step0", [0])]


def test_a_folder_that_does_not_show_its_rank_stands_alone() -> None:
    assert folders("d/step0/proc17", "d/step0/proc18", "elsewhere") == [
        ("d/step0/proc17", [0]),
        ("d/step0/proc18", [0]),
        ("elsewhere", [0]),
    ]


def test_a_second_dump_of_a_rank_stands_alone() -> None:
    assert folders("d/step0/rank", "d/step0/rank0") == [("d/step0", [0]), (Path("d/step0/rank0").as_posix(), [0])]
