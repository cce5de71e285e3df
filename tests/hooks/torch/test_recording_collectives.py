from __future__ import annotations

import pytest
import torch
from torch.utils import checkpoint

from msprobe_hooks.dump.communication.jsonl import read_calls, read_lines
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.recording.interposition import Interposition
from tests.support.requirements import require

require(torch.distributed.is_available(), "torch.distributed")

PRELUDE = """
import sys, os, torch, torch.distributed as dist
from torch.distributed import all_reduce as by_name
from msprobe_hooks import record
rank, world, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
x = torch.full((2,), float(rank + 1))
before = dist.all_reduce
with record(folder + "/d") as session:
"""


@pytest.fixture
def ranks(forked, tmp_path):
    """Run a script's body in two processes of a gloo group and return each rank's records."""

    def run(body):
        script = PRELUDE + "".join(f"    {line}\n" for line in body) + "dist.barrier(); dist.destroy_process_group()\n"
        forked.run_ranks(script, [[str(rank), "2", "0", str(tmp_path)] for rank in range(2)], tmp_path)
        return [read_dump(tmp_path / f"d/step0/rank{rank}/dump.json") for rank in range(2)]

    return run


def test_collectives_are_recorded_per_rank_before_and_after(ranks):
    for rank, dump in enumerate(ranks(["by_name(x)", "assert dist.all_reduce is before"])):
        call = dump.forward("Distributed.all_reduce.0.forward")
        assert call.args[0].max == rank + 1
        assert call.output[0].max == 3.0


def test_an_asynchronous_collective_is_recorded_when_it_is_waited_for(ranks):
    body = ["work = dist.all_reduce(x, async_op=True)", "torch.tanh(torch.ones(2))", "work.wait()"]
    for dump in ranks(body):
        assert list(dump.records) == ["Torch.tanh.0.forward", "Distributed.all_reduce.0.forward"]
        assert dump.forward("Distributed.all_reduce.0.forward").output[0].max == 3.0


def test_receive_buffers_are_null_before_the_call(ranks):
    body = ["out = torch.empty(4)", "dist.all_gather_into_tensor(out, x)", "parts = [torch.empty(2) for _ in range(2)]"]
    body += ["dist.all_gather(parts, x)", "dist.broadcast(x, src=0)"]
    for dump in ranks(body):
        gathered = dump.forward("Distributed.all_gather_into_tensor.0.forward")
        assert gathered.args[0] is None
        assert (gathered.output[0].max, gathered.output[0].min) == (2.0, 1.0)
        listed = dump.forward("Distributed.all_gather.0.forward")
        assert [part.max for part in listed.output[0]] == [1.0, 2.0]
        assert dump.forward("Distributed.broadcast.0.forward").output[0].max == 1.0


def test_sends_and_receives_are_recorded(ranks):
    body = [
        "operations = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, torch.empty(2), 1 - rank)]",
        "[work.wait() for work in dist.batch_isend_irecv(operations)]",
        "dist.send(x, 1) if rank == 0 else dist.recv(x, 0)",
    ]
    first, second = ranks(body)
    assert "Distributed.batch_isend_irecv.0.forward" in first.records
    assert "Distributed.send.0.forward" in first.records
    assert second.forward("Distributed.recv.0.forward").output[0].max == 1.0


def test_a_batch_is_recorded_when_all_of_it_has_been_waited_for_in_any_order(ranks):
    body = [
        "if rank == 0:",
        "    import time",
        "    work = dist.irecv(torch.empty(2), 1)",
        "    time.sleep(1)",
        "    dist.send(x, 1)",
        "    work.wait()",
        "else:",
        "    operations = [dist.P2POp(dist.irecv, torch.zeros(2), 0), dist.P2POp(dist.isend, x, 0)]",
        "    [work.wait() for work in reversed(dist.batch_isend_irecv(operations))]",
    ]
    _, second = ranks(body)
    received, _ = second.forward("Distributed.batch_isend_irecv.0.forward").output[0]
    assert received.items["tensor"].max == 1.0


def test_distributed_tensors_show_mesh_and_placement(ranks):
    body = [
        "from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor",
        "mesh = DeviceMesh('cpu', [0, 1])",
        "d = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])",
        "torch.tanh(d)",
        "assert session.summary.errors == {}, session.summary.errors",
    ]
    for dump in ranks(body):
        entry = dump.forward("Torch.tanh.0.forward").args[0]
        assert entry.type == "torch.distributed.tensor.DTensor"
        assert b"Shard" in bytes(dump.records["Torch.tanh.0.forward"])


def test_data_parallel_gradients_are_those_that_the_optimizer_sees(ranks):
    body = [
        "torch.manual_seed(0)",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))",
        "model(x[None]).sum().backward()",
        "torch.tanh(model.module.weight.grad)",
    ]
    for dump in ranks(body):
        assert dump.forward("Torch.tanh.0.forward").args[0].max == 1.5


def test_an_interposed_function_keeps_identity_and_signature_of_calls():
    def plain(a, b=2, *, c=3):
        return a + b + c

    plain_before = plain
    seen = []

    def around(function, args, kwargs):
        seen.append((args, kwargs))
        return function(*args, **kwargs) * 10

    outer, inner = Interposition(plain, around), Interposition(plain, around)
    assert plain is plain_before
    assert plain(1, c=4) == 700
    inner.remove()
    assert plain(1) == 60
    outer.remove()
    assert plain(1) == 6
    assert len(seen) == 3


def test_what_is_no_python_function_is_refused():
    with pytest.raises(TypeError, match="is not a Python function"):
        Interposition(len, lambda function, args, kwargs: None)


def reported(dump):
    """Return what the lines next to a dump say, in words: ``began all_reduce.0``."""
    lines = read_lines(dump.path.parent)
    return [f"{line.event} {line.record.removeprefix('Distributed.').removesuffix('.forward')}" for line in lines]


def test_that_communication_begins_and_ends_is_reported_in_lines_next_to_the_dump(ranks):
    body = ["work = dist.broadcast(x, src=0, async_op=True)", "dist.all_reduce(torch.ones(3))", "work.wait()"]
    body += ["dist.barrier()", "dist.all_reduce(x, async_op=True)"]
    for dump in ranks(body):
        assert reported(dump) == [
            *("began broadcast.0", "launched broadcast.0", "began all_reduce.0", "ended all_reduce.0"),
            *("ended broadcast.0", "began barrier.0", "ended barrier.0", "began all_reduce.1", "launched all_reduce.1"),
        ]
        assert not any("barrier" in name for name in dump.records)
        calls = read_calls(dump, 0, frozenset({0, 1})).calls
        assert [call.name.split(".")[1] for call in calls] == ["broadcast", "all_reduce", "barrier", "all_reduce"]
        assert calls[1].ends[0].tensors == (("float32", (3,)),)


def test_coalesced_collectives_are_recorded_when_they_have_been_made(ranks):
    body = [
        "with dist._coalescing_manager():",
        "    dist.all_reduce(x)",
        "y = torch.full((3,), float(rank))",
        "with dist._coalescing_manager(async_ops=True) as manager:",
        "    dist.all_reduce(y, async_op=True)",
        "manager.wait()",
        "assert session.summary.errors == {}, session.summary.errors",
    ]
    for dump in ranks(body):
        first, second = (dump.forward(f"Distributed.all_reduce.{n}.forward") for n in range(2))
        assert (first.output[0].max, second.output[0].max) == (3.0, 1.0)
        assert reported(dump)[-2:] == ["launched all_reduce.1", "ended all_reduce.1"]


def test_functional_collectives_are_recorded_as_those_of_torch_distributed(ranks):
    body = [
        "import torch.distributed._functional_collectives as functional",
        "world = dist.group.WORLD",
        "functional.all_reduce(x, 'sum', world)",
        "functional.broadcast(x, 1, world)",
        "functional.all_reduce_coalesced([x, x + 1], 'max', world)",
        "functional.reduce_scatter_tensor(torch.stack([x, x]).reshape(4), 'sum', 0, world)",
    ]
    for rank, dump in enumerate(ranks(body)):
        call = dump.forward("Distributed.all_reduce.0.forward")
        assert (call.args[0].max, call.output[0].max) == (rank + 1, 3.0)
        assert [dump.forward(f"Distributed.all_reduce.{i}.forward").output[0].max for i in (1, 2)] == [2.0, 3.0]
        assert dump.forward("Distributed.broadcast.0.forward").output[0].max == 2.0
        assert dump.forward("Distributed.reduce_scatter_tensor.0.forward").output[0].max == 3.0
        ends = {call.name: call.ends[0] for call in read_calls(dump, rank, frozenset({0, 1})).calls}
        assert ends["Distributed.all_reduce.1.forward"].reduction == "MAX"
        assert ends["Distributed.broadcast.0.forward"].root == 1


def test_a_functional_collective_is_recorded_in_inference_mode(ranks):
    body = [
        "import torch.distributed._functional_collectives as functional",
        "with torch.inference_mode():",
        "    functional.reduce_scatter_tensor(torch.stack([x, x]).reshape(4), 'sum', 0, dist.group.WORLD)",
    ]
    for dump in ranks(body):
        assert dump.forward("Distributed.reduce_scatter_tensor.0.forward").output[0].max == 3.0


def test_a_selective_checkpoint_may_keep_the_result_of_a_recorded_collective(ranks):
    require(hasattr(checkpoint, "create_selective_checkpoint_contexts"), "selective checkpoints of torch 2.4")
    body = [
        "import torch.distributed._functional_collectives as functional",
        "from torch.utils import checkpoint",
        "operators = [torch.ops._c10d_functional.reduce_scatter_tensor.default]",
        "contexts = lambda: checkpoint.create_selective_checkpoint_contexts(operators)",
        "scattered = lambda y: functional.reduce_scatter_tensor(y.detach(), 'sum', 0, dist.group.WORLD)",
        "x.requires_grad_()",
        "y = checkpoint.checkpoint(lambda x: scattered(x) * x.exp(), x, use_reentrant=False, context_fn=contexts)",
        "y.sum().backward()",
        "assert torch.equal(x.grad, y)",
    ]
    for dump in ranks(body):
        assert dump.forward("Distributed.reduce_scatter_tensor.0.forward").output[0].max == 3.0


def test_the_communication_of_fully_sharded_models_is_recorded(ranks):
    body = [
        "from torch.distributed.fsdp import fully_shard",
        "model = fully_shard(torch.nn.Linear(2, 2))",
        "model(x).sum().backward()",
    ]
    for dump in ranks(body):
        assert {"Distributed.all_gather_into_tensor.0.forward", "Distributed.reduce_scatter_tensor.0.forward"} <= {
            *dump.records
        }


def test_a_distributed_tensor_is_measured_anew_after_a_write(ranks):
    body = [
        "from torch.distributed.device_mesh import init_device_mesh",
        "from torch.distributed.tensor import Shard, distribute_tensor",
        "tensor = distribute_tensor(torch.zeros(4), init_device_mesh('cpu', (2,)), [Shard(0)])",
        "tensor.add_(3.0)",
        "tensor.mul_(2.0)",
    ]
    for dump in ranks(body):
        assert dump.forward("Tensor.add_.0.forward").output[0].max == 3.0
        assert dump.forward("Tensor.mul_.0.forward").output[0].max == 6.0


def test_a_compiled_functional_collective_is_traced_in_one_piece(ranks):
    body = [
        "import torch.distributed._functional_collectives as functional",
        "summed = torch.compile(",
        "    lambda x: functional.all_reduce(x, 'sum', dist.group.WORLD) * 2, backend='eager', fullgraph=True",
        ")",
        "assert summed(x).tolist() == [6.0, 6.0]",
    ]
    assert len(ranks(body)) == 2
