"""``--msprobe-communication``: what is collected and reported, how a run is resumed, and what wrong input becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.communication.jsonl import CommunicationLines, Line
from tests.support.dumps.dump_files import Json, tensor_around, value

Check = Callable[..., Any]
FLAG = "--msprobe-communication"


def broadcast(number: int, at: float = 1.0) -> Json:
    x = tensor_around(4, at=at)
    body = {"input_args": [x], "input_kwargs": {"src": value(0)}, "output": [x, value(0)]}
    return {f"Distributed.broadcast.{number}.forward": body}


def all_reduce(number: int, at: float = 1.0) -> Json:
    x = tensor_around(number + 2, at=at)
    return {f"Distributed.all_reduce.{number}.forward": {"input_args": [x], "input_kwargs": {}, "output": [x]}}


WHOLE = broadcast(0) | all_reduce(0) | all_reduce(1) | {"Torch.mm.0.forward": {"input_args": [], "output": []}}


@pytest.fixture
def write(write_dump: Check) -> Callable[..., None]:
    """Write the records of ranks 0, 1 ... of a step."""

    def write(*ranks: Json, step: int = 0, **top: Any) -> None:
        for rank, records in enumerate(ranks):
            write_dump(records, f"step{step}/rank{rank}", **top)

    return write


@pytest.mark.parametrize("way", [[], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=" ".join)
def test_each_communication_is_an_item_of_the_first_rank_that_took_part(
    write: Callable[..., None], check: Check, way: list[str]
) -> None:
    write(WHOLE, WHOLE | all_reduce(1, at=2.0), WHOLE)
    checked = check(f"{FLAG}=step0", *way, apart=bool(way))
    assert checked.outcomes == {
        "Distributed.broadcast.0.forward": "passed",
        "Distributed.all_reduce.0.forward": "passed",
        "Distributed.all_reduce.1.forward": "failed",
    }
    assert "msprobe: step0: ranks 0-2, 9 calls, 3 communications" in checked.output or way
    assert "first that differs: all_reduce.1 among ranks 0-2" in checked.output
    assert "  output differs: rank 1: max 2 " in checked.output
    assert "  last that agrees: all_reduce.0 among ranks 0-2" in checked.output


def test_many_steps_are_one_line_of_the_header(write: Callable[..., None], check: Check) -> None:
    for step in range(3):
        write(WHOLE, WHOLE, step=step)
    checked = check(f"{FLAG}=.", "--collect-only", "-q", "-v")
    reported = [line for line in checked.output.splitlines() if line.startswith("msprobe: ") and "calls" in line]
    assert reported == ["msprobe: 3 steps, step0 to step2: ranks 0, 1, 18 calls, 9 communications"]


def test_an_item_that_is_run_again_alone_knows_the_other_ranks(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    write(WHOLE, WHOLE | all_reduce(1, at=2.0), WHOLE)
    place = f"{pytester.path}/step0/rank0/dump.json::Distributed.all_reduce.1.forward"
    again = f"{FLAG}={place}"
    assert f"Run this item alone: pytest {again}" in check(f"{FLAG}=step0").output
    assert check(again).outcomes == {"Distributed.all_reduce.1.forward": "failed"}


def test_a_run_is_resumed_and_the_earliest_difference_still_leads(write: Callable[..., None], check: Check) -> None:
    odd = broadcast(0) | all_reduce(0, at=3.0) | all_reduce(1, at=2.0)
    write(WHOLE, odd, WHOLE)
    first = check(f"{FLAG}=step0", "--msprobe-journal=run.jsonl", "-k", "all_reduce.0")
    assert first.wrong == {"Distributed.all_reduce.0.forward"}
    second = check(f"{FLAG}=step0", "--msprobe-resume=run.jsonl")
    assert "1 failed, 1 passed, 1 deselected" in second.output
    assert "first that differs: all_reduce.0 among ranks 0-2" in second.output


def test_tables_have_a_row_for_each_communication(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    write(WHOLE, WHOLE | all_reduce(1, at=2.0), WHOLE)
    check(f"{FLAG}=step0", "--msprobe-csv=tables")
    (details,) = pytester.path.glob("tables/**/accuracy_checking_details_*.csv")
    assert [row.split(",")[0] for row in details.read_text().splitlines()[1:4]] == [*list(WHOLE)[:3]]


def test_of_real_tensors_the_bits_are_compared(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    def reduced(rank: int) -> Json:
        kept = tensor_around(2) | {"data_name": "all_reduce.output.pt"}
        folder = pytester.path / f"step0/rank{rank}/dump_tensor_data"
        folder.mkdir(parents=True)
        # The sign of a zero is in no statistic.
        torch.save(torch.tensor([1.0, -0.0 if rank == 1 else 0.0]), folder / "all_reduce.output.pt")
        return {"Distributed.all_reduce.0.forward": {"input_args": [tensor_around(2)], "output": [kept]}}

    write(*(reduced(rank) for rank in range(3)), task="tensor")
    checked = check(f"{FLAG}=step0")
    assert checked.wrong == {"Distributed.all_reduce.0.forward"}
    assert "  output differs: rank 1: bits " in checked.output


def test_a_folder_s_name_may_be_any_number(write_dump: Check, check: Check) -> None:
    write_dump(WHOLE, "step0/rank0")
    write_dump(WHOLE, "step0/rank987654321987654321")
    assert check(f"{FLAG}=step0", "-Wdefault::UserWarning").wrong == set()


def test_a_rank_that_was_killed_in_a_call_is_reported(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    short = broadcast(0)
    write(WHOLE, WHOLE, short)
    lines = CommunicationLines(pytester.path / "step0/rank2")
    for event, record in (("began", "broadcast.0"), ("ended", "broadcast.0"), ("began", "all_reduce.0")):
        lines.write(Line(event, f"Distributed.{record}.forward", 1.0, [tensor_around(2)]))  # type: ignore[arg-type]
    lines.close()
    output = check(f"{FLAG}=step0").output
    assert "first that differs: all_reduce.0 among ranks 0-2\n  rank 2 did not return from it\n" in output
    assert "rank 2 was in all_reduce.0 when its recording ended; its last record is Distributed.broadcast.0.f" in output


def test_of_a_dump_that_was_cut_off_the_rest_is_judged(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    write(WHOLE, WHOLE, WHOLE)
    path = pytester.path / "step0/rank1/dump.json"
    text = path.read_text()
    path.write_text(text[: text.index("Distributed.all_reduce.1") + 50])
    checked = check(f"{FLAG}=step0")
    assert checked.wrong == {"Distributed.all_reduce.1.forward"}
    assert f"msprobe: {path}: the file is cut off after 2 records" in checked.output
    assert "rank 1 has no such call; it last communicated in all_reduce.0 (the file is cut off" in checked.output


def test_an_empty_dump_is_a_rank_that_lacks_all(
    write: Callable[..., None], check: Check, pytester: pytest.Pytester
) -> None:
    write(WHOLE, WHOLE, WHOLE)
    (pytester.path / "step0/rank1/dump.json").write_text("")
    checked = check(f"{FLAG}=step0")
    assert (
        "rank 1 has no such call; it did not communicate; its dump has no records (the file is empty)" in checked.output
    )


def test_ranks_without_a_dump_are_reported(write: Callable[..., None], check: Check, pytester: pytest.Pytester) -> None:
    write(WHOLE, WHOLE, WHOLE)
    write(WHOLE, WHOLE, step=1)
    (pytester.path / "step0/rank1/dump.json").unlink()
    checked = check(f"{FLAG}=.", "-Wdefault::UserWarning")
    assert checked.wrong == set()
    assert "step0: no dump of rank 1" in checked.output
    assert "step1: no dump of rank 2" in checked.output
    assert "communication: no dump of rank 2, which took part" in checked.output


@pytest.mark.parametrize(
    ("top", "reported"),
    [
        ({"level": "L0"}, "level L0 records no communication; record with level L1 or mix"),
        ({"task": "overflow_check"}, "task overflow_check records some calls only"),
    ],
)
def test_a_recording_without_communication_is_refused(
    write: Callable[..., None], check: Check, top: Json, reported: str
) -> None:
    write(WHOLE, WHOLE, **top)
    checked = check(f"{FLAG}=step0")
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert reported in checked.errors


def test_dumps_without_communication_calls_are_said_to_have_none(write: Callable[..., None], check: Check) -> None:
    call = {"Torch.mm.0.forward": {"input_args": [], "output": []}}
    write(call, call)
    assert "no communication calls in these dumps" in check(f"{FLAG}=step0").output


def test_names_and_values_of_others_are_text(write: Callable[..., None], check: Check) -> None:
    hostile = {"type": "torch.ProcessGroup", "group_ranks": ["\x1b[31m", {}], "group_id": ["x"] * 3}
    odd = {"Distributed.all_reduce.\x1b[2J.forward": {"input_args": 3, "output": "x"}}
    records = {"Distributed.all_reduce.0.forward": {"input_args": [], "input_kwargs": {"group": hostile}, "output": []}}
    write(records | odd, records)
    checked = check(f"{FLAG}=step0")
    assert checked.exit_code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert "left out as malformed: Distributed.all_reduce." in checked.output
    assert "\x1b[2J" not in checked.output


def test_marks_are_those_of_the_first_rank_s_record(write: Callable[..., None], check: Check) -> None:
    write(WHOLE, WHOLE)
    assert len(check(f"{FLAG}=step0", "-m", "Distributed and float32").cases) == 3
    assert check(f"{FLAG}=step0", "-m", "bfloat16").cases == {}


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("Module.module.fc.Linear.forward.0", {}, "the reductions of DistributedDataParallel"),
        ("Module.fc.FSDPLinear.forward.0", {}, "the communication of FSDP"),
        ("Torch.mm.0.forward", {"placements": [{"Replicate": {}}]}, "what DTensors communicate inside"),
    ],
)
def test_the_summary_says_why_the_communication_of_a_library_was_not_judged(
    write: Callable[..., None], check: Check, name: str, tensor: Json, words: str
) -> None:
    call = {name: {"input_args": [tensor], "output": []}}
    write(call, call)
    assert f"not recorded: {words}" in check(f"{FLAG}=step0").output
