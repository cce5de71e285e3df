"""Four processes that communicate by gloo, one of them with a fault: it is named, at its rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.gloo import run_ranks
from tests.support.requirements import require

pytestmark = pytest.mark.slow

require(torch.distributed.is_available(), "torch.distributed")

# Each fault is a run of its own: what a hang has broken is taken down, and a new group made. Rank 2 has the faults.
PROGRAM = """
import datetime, fcntl, os, signal, sys, threading, time, torch, torch.distributed as dist
from pathlib import Path
from msprobe_hooks import record
rank, folder = int(sys.argv[1]), sys.argv[2]
odd = rank == 2

# The system opens this lock when rank 2 dies.
lock = open(f"{folder}/lock", "w")
if odd:
    fcntl.flock(lock, fcntl.LOCK_EX)

# A rank that leaves while another still reads from it aborts that one.
def meet(store, place):
    store.add(place, 1)
    while store.add(place, 0) < 4:
        time.sleep(0.01)

def begin():
    dist.all_reduce(torch.full((2,), float(rank)))
    dist.broadcast(torch.full((3,), float(rank)), src=1)

def healthy():
    halves = dist.new_group([0, 1]), dist.new_group([2, 3])
    x = torch.full((4,), float(rank))
    dist.all_reduce(x, group=halves[rank // 2])
    gathered = [torch.empty(4) for _ in range(4)]
    dist.all_gather(gathered, x)
    dist.all_gather_into_tensor(torch.empty(16), x)
    dist.reduce_scatter_tensor(torch.empty(1), x)
    dist.gather(x, [torch.empty(4) for _ in range(4)] if rank == 1 else None, dst=1)
    dist.scatter(torch.empty(4), [torch.full((4,), float(i)) for i in range(4)] if rank == 3 else None, src=3)
    dist.reduce(x, 2)
    dist.all_to_all_single(torch.empty(4), x)
    dist.all_to_all_single(
        torch.empty(4 if rank == 0 else 0), torch.ones(1), [1] * 4 if rank == 0 else [0] * 4, [1, 0, 0, 0]
    )
    right, left = (rank + 1) % 4, (rank - 1) % 4
    operations = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, torch.empty(4), left)]
    [work.wait() for work in dist.batch_isend_irecv(operations)]
    if rank < 2:
        work = dist.isend(x, rank + 2, tag=7)
        work.wait()
    else:
        dist.irecv(torch.empty(4), rank - 2, tag=7).wait()
    objects = [None] * 4
    dist.all_gather_object(objects, {"rank": "x" * rank})
    dist.broadcast_object_list([rank, "of any length" * rank], src=2)
    works = [dist.all_reduce(torch.ones(n + 1), async_op=True) for n in range(3)]
    for work in (works if odd else reversed(works)):
        work.wait()
    with dist._coalescing_manager():
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(3))
    dist.barrier()

def corrupted_buffer():
    x = torch.ones(5)
    work = dist.all_reduce(x, async_op=True)
    if odd:
        while not work.is_completed():
            time.sleep(0.01)
        x[3] = 77.0
    work.wait()

def skipped_collective():
    if not odd:
        dist.all_reduce(torch.ones(5))

def wrong_group():
    pair = dist.new_group([2, 3], timeout=timeout)
    dist.all_reduce(torch.ones(5), group=pair if odd else None)

def swapped_order():
    x, y = torch.ones(5), torch.ones(6)
    calls = [lambda: dist.all_reduce(x, async_op=True), lambda: dist.broadcast(y, 0, async_op=True)]
    works = [call() for call in (reversed(calls) if odd else calls)]
    [work.wait() for work in works]

def killed():
    if odd:
        threading.Thread(target=die_in_all_reduce).start()
        dist.all_reduce(torch.ones(5))
    fcntl.flock(lock, fcntl.LOCK_SH)

def die_in_all_reduce():
    (lines,) = Path(folder, "killed").rglob("rank2/communication.jsonl")
    while "Distributed.all_reduce.1.forward" not in lines.read_text():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

for fault in (healthy, corrupted_buffer, skipped_collective, wrong_group, swapped_order, killed):
    name = fault.__name__
    timeout = datetime.timedelta(seconds=30 if fault in (healthy, corrupted_buffer) else 10)
    store = dist.FileStore(f"{folder}/{name}.store", 4)
    meet(store, "begin")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4, timeout=timeout)
    with record(f"{folder}/{name}") as session:
        begin()
        meet(store, "begun")
        try:
            fault()
        except RuntimeError as error:
            print(name, rank, error, file=sys.stderr)
    assert not session.summary.errors, session.summary.errors
    if fault is killed:
        os._exit(0)
    if fault in (healthy, corrupted_buffer):
        meet(store, "end")
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with a recording of each fault."""
    folder = tmp_path_factory.mktemp("gloo")
    ended = run_ranks(PROGRAM, 4, folder)
    assert [code for code, _ in ended] == [0, 0, -9, 0], ended
    return folder


@pytest.fixture
def judge(runs: Path, check: Callable[..., Any]) -> Callable[[str], Any]:
    """Judge the communication of a recording."""
    return lambda name: check(f"--msprobe-communication={runs / name}")


def test_a_healthy_program_has_no_failure(judge: Callable[[str], Any]) -> None:
    checked = judge("healthy")
    assert checked.wrong == set(), checked.output
    assert "no communication differs between ranks" in checked.output
    assert len(checked.cases) > 25


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ("corrupted_buffer", ["all_reduce.1 among ranks 0-3", "output differs: rank 2: max 77", "broadcast.0"]),
        ("skipped_collective", ["all_reduce.1 among ranks 0-3", "rank 2 has no such call", "broadcast.0"]),
        ("wrong_group", ["all_reduce.1 among ranks 0-3", "it called all_reduce.1 among ranks 2, 3", "broadcast.0"]),
        ("swapped_order", ["all_reduce.1 among ranks 0-3", "rank 2: after broadcast.1", "broadcast.0"]),
        ("killed", ["all_reduce.1 among ranks 0-3", "only rank 2 made this call", "broadcast.0"]),
    ],
)
def test_a_planted_fault_is_named_at_its_rank(judge: Callable[[str], Any], fault: str, reported: list[str]) -> None:
    output = judge(fault).output
    first, headline, *rest = output.partition("first that differs: ")[2].splitlines()
    place, words, last = reported
    assert first == place, output
    assert words in headline, output
    assert any(line.strip().startswith(f"last that agrees: {last}") for line in rest), output


def test_a_rank_that_was_killed_in_a_collective_shows_it(judge: Callable[[str], Any]) -> None:
    assert "rank 2 was in all_reduce.1 when its recording ended" in judge("killed").output
