"""Process groups of the real torch_npu, whose HCCL is simulated between the processes of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.gloo import run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

_PROGRAMS = Path(__file__).parents[1] / "support" / "cann"


def _differences(name: str, count: int, folder: Path) -> list[dict[str, str]]:
    """Run a program of ranks, and return what each check of each rank found to differ; empty where nothing does."""
    program = (_PROGRAMS / f"{name}.py").read_text()
    for status, errors in run_ranks(program, count, folder, SIMULATED_CANN_CARDS=str(count)):
        assert status == 0, errors
    return [json.loads((folder / f"differences{rank}.json").read_text()) for rank in range(count)]


def _of(differences: dict[str, str]) -> dict[str, str]:
    return {check: difference for check, difference in differences.items() if difference}


@pytest.mark.parametrize("count", [2, 4])
def test_each_collective_gives_every_rank_what_follows_from_the_inputs_of_all(
    count: int, pytester: pytest.Pytester
) -> None:
    for differences in _differences("every_collective", count, pytester.path):
        assert len(differences) > 50
        assert not _of(differences)


@pytest.mark.parametrize("count", [2, 4])
def test_a_model_split_over_ranks_learns_what_the_whole_model_learns(count: int, pytester: pytest.Pytester) -> None:
    """By data parallel, tensor parallel, fully sharded and pipelined training."""
    for differences in _differences("parallel_training", count, pytester.path):
        assert len(differences) == 5
        assert not _of(differences)
