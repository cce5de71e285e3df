"""Records the statistics of ten steps on each rank; with --faulty, rank 1 scales a weight from step 6 on.

torchrun --nproc-per-node=2 steps_and_ranks/train.py golden
torchrun --nproc-per-node=2 steps_and_ranks/train.py target --faulty
"""

import argparse
import os

import torch
from torch import nn

from msprobe_hooks import PrecisionDebugger

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--faulty", action="store_true")
arguments = parser.parse_args()
rank = int(os.environ["RANK"])

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
debugger = PrecisionDebugger(dump_path=arguments.folder, task="statistics", level="L0")

torch.manual_seed(rank + 1)
for step in range(10):
    inputs = torch.randn(16, 8)
    if arguments.faulty and rank == 1 and step >= 6:
        with torch.no_grad():
            model[1][2].weight *= 1.5
    debugger.start(model=model, rank_id=rank)
    model(inputs).square().mean().backward()
    debugger.stop()
    debugger.step()
    optimizer.step()
    optimizer.zero_grad()
