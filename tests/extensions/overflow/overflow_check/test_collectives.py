from __future__ import annotations

import json

import pytest
import torch

from tests.support.gloo import run_ranks
from tests.support.requirements import require

require(torch.distributed.is_available(), "torch.distributed")

PROGRAM = """
import sys, torch, torch.distributed as dist
from msprobe_hooks import record
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
with record(folder + "/d", task="overflow_check", overflow_nums=-1):
    largest = torch.full((2,), 3e38)
    dist.all_reduce(largest)
    largest + 1
    small = torch.ones(2)
    dist.all_reduce(small, async_op=True).wait()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_sum_over_ranks_that_overflows_is_written_without_what_it_wrote_over(tmp_path):
    ended = run_ranks(PROGRAM, 2, tmp_path)
    assert [code for code, _ in ended] == [0, 0], ended
    for rank in range(2):
        records = json.loads((tmp_path / f"d/step0/rank{rank}/dump.json").read_text())["data"]
        assert list(records) == ["Distributed.all_reduce.0.forward"]
        assert records["Distributed.all_reduce.0.forward"]["details"] == {"input.0": {"values": "overwritten"}}
