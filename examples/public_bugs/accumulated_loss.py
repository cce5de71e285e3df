"""huggingface/transformers#37766: with two micro-batches the loss is divided by the items of each one alone."""

import torch
import torch.nn.functional as F
from simulated import record_runs

from msprobe_hooks import record


def run(folder, faulty):
    model = torch.nn.Linear(8, 16)
    rows, labels = torch.randn(12, 8), torch.randint(0, 16, (12,))
    with record(folder, model=model):
        for batch, wanted in zip(rows.split(6), labels.split(6), strict=True):
            loss = F.cross_entropy(model(batch), wanted, reduction="sum")
            (loss / (len(batch) if faulty else len(rows))).backward()


if __name__ == "__main__":
    record_runs(run)
