"""NVIDIA-NeMo/Automodel#2658: two masks of the least bfloat16 are added, which overflows where both mask."""

import torch
from simulated import record_runs

from msprobe_hooks import record

LEAST = torch.finfo(torch.bfloat16).min


def run(folder, faulty):
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    padding = torch.tensor([False, False, False, True])
    with record(folder):
        if faulty:
            mask = torch.where(future, LEAST, 0).bfloat16() + torch.where(padding, LEAST, 0).bfloat16()
        else:
            mask = torch.where(future | padding, LEAST, 0).bfloat16()
        torch.softmax(torch.randn(4, 4).bfloat16() + mask, -1)


if __name__ == "__main__":
    record_runs(run)
