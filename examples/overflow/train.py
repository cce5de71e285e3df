"""Four ranks record one step in which inf arises on rank 2 and reaches all of them: ``python train.py FOLDER``."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from msprobe_hooks import PrecisionDebugger

RANKS = 4


def step(rank: int) -> torch.Tensor:
    x = torch.tanh(torch.rand(8) + 1)
    dist.all_reduce(x)
    scores = torch.relu(x)
    if rank == 2:
        scores = torch.exp(scores * 1000)  # too large for float32
        dist.send(scores, dst=3)
    if rank == 3:
        received = torch.zeros(8)
        dist.recv(received, src=2)
        scores = scores + received
    dist.broadcast(scores, src=3)
    return torch.mul(scores, 0.5)


def run(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS)
    debugger = PrecisionDebugger(task="statistics", dump_path=folder, level="L1")
    torch.manual_seed(rank)
    debugger.start()
    step(rank)
    debugger.stop()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "recorded").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    mp.spawn(run, args=(folder,), nprocs=RANKS)
    (folder / "store").unlink(missing_ok=True)
