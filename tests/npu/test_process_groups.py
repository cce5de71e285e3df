"""Process groups of the real torch_npu, whose HCCL is simulated between the processes of this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.gloo import run_ranks
from tests.support.nightly import nightly_but
from tests.support.runs import check

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


@pytest.mark.parametrize("count", nightly_but([2, 4], 2))
def test_each_collective_gives_every_rank_what_follows_from_the_inputs_of_all(
    count: int, pytester: pytest.Pytester
) -> None:
    for differences in _differences("every_collective", count, pytester.path):
        assert len(differences) > 50
        assert not _of(differences)


@pytest.mark.nightly
@pytest.mark.parametrize("count", nightly_but([2, 4], 2))
def test_a_model_split_over_ranks_learns_what_the_whole_model_learns(count: int, pytester: pytest.Pytester) -> None:
    """By data parallel, tensor parallel, fully sharded and pipelined training."""
    for differences in _differences("parallel_training", count, pytester.path):
        assert len(differences) == 5
        assert not _of(differences)


def _record(folder: Path, name: str, device: str = "npu", **more: str) -> Path:
    """Record a step of two ranks on cards, or on the host, and return where it lies."""
    program = (_PROGRAMS / "recorded_ranks.py").read_text()
    variables = {"DEVICE": device, "NAME": name, "TASK": "statistics", "LEVEL": "L1"} | more
    for status, errors in run_ranks(program, 2, folder, **variables):
        assert status == 0, errors
    return folder / name


@pytest.mark.nightly
@pytest.mark.parametrize(("task", "level"), nightly_but([("statistics", "L1"), ("tensor", "mix")], ("tensor", "mix")))
def test_ranks_on_cards_record_what_ranks_on_the_host_record(task: str, level: str, pytester: pytest.Pytester) -> None:
    on_cards = _record(pytester.path, "cards", TASK=task, LEVEL=level)
    on_host = _record(pytester.path, "host", "cpu", TASK=task, LEVEL=level)
    compared = check(pytester, f"--msprobe-compare={on_cards}", f"--msprobe-golden={on_host}")
    assert set(compared.outcomes.values()) == {"passed"}
    judged = check(pytester, f"--msprobe-communication={on_cards}")
    assert "no communication differs between ranks" in judged.output
    # What the hook of DistributedDataParallel reduces is waited for in C++, where no values are seen.
    assert judged.result.parseoutcomes() == {"passed": 6, "skipped": 1}


def test_a_collective_that_is_wrong_on_one_card_is_found_between_the_ranks(pytester: pytest.Pytester) -> None:
    wrong = _record(pytester.path, "wrong", SIMULATED_CANN_FAULTS="HcclAllReduce@1=wrong")
    judged = check(pytester, f"--msprobe-communication={wrong}")
    assert "first that differs: all_reduce.1 among ranks 0, 1" in judged.output
    assert "output differs: rank 1: max" in judged.output
    assert judged.result.parseoutcomes() == {"failed": 2, "passed": 4, "skipped": 1}


WAITING = """
import os, sys, time
import torch
import torch.distributed as dist

rank, folder, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.npu.set_device(rank)
store = dist.FileStore(f"{folder}/store", count)
dist.init_process_group("hccl", store=store, rank=rank, world_size=count)
ones = torch.ones(3, device="npu")
dist.all_reduce(ones)
first = f"/proc/{store.get('first').decode()}" if rank else store.set("first", str(os.getpid()))
if rank == 1:
    while os.environ["PEER"] == "sleeps" and os.path.exists(first):
        time.sleep(0.1)
    os._exit(0)
if os.environ["PEER"] == "calls another":
    ones = ones[:2]
dist.all_reduce(ones)
torch.npu.synchronize()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("peer", "seconds", "expected"),
    [
        ("ends", "300", r"EI0002: .* remote rank \[1\].*Heartbeat Lost Occurred"),
        ("sleeps", "10", r"EI0002: .* remote rank \[1\].*HCCL_EXEC_TIMEOUT has passed"),
    ],
    ids=["ends", "sleeps"],
)
def test_a_rank_whose_peer_does_not_come_ends_with_the_error_of_hccl(
    peer: str, seconds: str, expected: str, pytester: pytest.Pytester
) -> None:
    (status, errors), _ = run_ranks(WAITING, 2, pytester.path, PEER=peer, HCCL_EXEC_TIMEOUT=seconds)
    assert status != 0
    assert re.search(expected, errors)
    assert "error code is 507048" in errors


@pytest.mark.nightly
def test_ranks_that_call_different_collectives_end_with_the_error_of_hccl(pytester: pytest.Pytester) -> None:
    program = WAITING.replace("if rank == 1:", "if False:").replace("ones = ones[:2]", "ones = ones[: 2 + rank]")
    for status, errors in run_ranks(program, 2, pytester.path, PEER="calls another"):
        assert status != 0
        assert "EI0005: The arguments for collective communication are inconsistent between ranks" in errors


LIVE = """
import json, sys, warnings
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from pytest_msprobe import live

rank, folder, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.npu.set_device(rank)
warnings.simplefilter("ignore")
dist.init_process_group("hccl", init_method=f"file://{folder}/store", rank=rank, world_size=count)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).npu()
model = DistributedDataParallel(model)
with live() as checks:
    loss = model(torch.randn(4, 8).npu()).square().mean()
    loss.backward()
    dist.all_reduce(loss.detach())
failed = sorted(result.record for result in checks.failed)
with open(f"{folder}/failed{rank}.json", "w") as file:
    json.dump([sum(checks.counts.values()), failed], file)
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_live_checks_of_ranks_find_the_call_that_one_card_gets_wrong(pytester: pytest.Pytester) -> None:
    for status, errors in run_ranks(LIVE, 2, pytester.path, SIMULATED_CANN_FAULTS="tanh@1=wrong"):
        assert status == 0, errors
    found = [json.loads((pytester.path / f"failed{rank}.json").read_text()) for rank in range(2)]
    assert found[0][0] > 5
    assert [failed for _, failed in found] == [[], ["Torch.tanh.0.backward", "Torch.tanh.0.forward"]]


@pytest.mark.nightly
def test_operators_that_compute_and_communicate_give_each_rank_its_part(pytester: pytest.Pytester) -> None:
    for differences in _differences("fused_between_ranks", 2, pytester.path):
        assert len(differences) >= 14
        assert not _of(differences)
