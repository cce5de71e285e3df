"""deepspeedai/DeepSpeed#7839: in bfloat16 without ZeRO, gradients are not cleared after a step."""

import torch
from simulated import record_runs
from torch import nn

from msprobe_hooks import record


def run(folder, faulty):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with record(folder, model=model) as recording:
        for _ in range(2):
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            if not faulty:
                optimizer.zero_grad()
            recording.step()


if __name__ == "__main__":
    record_runs(run)
