"""Trainings that write what they are started with: a small language model and a small convolutional one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: A transformer on token ids that are keyword arguments, in random batches, launched by a script.
TRANSFORMER = """
import argparse, random
from pathlib import Path
from msprobe_hooks import write_environment

write_environment("start", files=["run.sh"])

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=7)
parser.add_argument("--order", type=int, default=1)
parser.add_argument("--nudge", action="store_true")
options = parser.parse_args()
random.seed(options.seed)
np.random.seed(options.seed)
torch.manual_seed(options.seed)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 32)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.layer(self.embedding(input_ids)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


model = Model()
if options.nudge:
    with torch.no_grad():
        model.head.weight[3, 4] += 1e-3
data = torch.randint(0, 32, (24, 9))
rows = list(range(24))
random.shuffle(rows)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
for step in range(3):
    batch = data[rows[step * 8 : step * 8 + 8 : 1][:: options.order]]
    loss = model(input_ids=batch[:, :-1], labels=batch[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert not any(module._forward_pre_hooks for module in model.modules())
Path("loss").write_text(repr(loss.item()))
"""

#: A convolutional model with running statistics, on a DataLoader that shuffles.
CONVOLUTIONS = """
import sys
from pathlib import Path
from types import SimpleNamespace
from msprobe_hooks import write_environment

settings = dict(word.split("=") for word in sys.argv[1:])
hyperparameters = {"lr": float(settings.get("lr", 0.1)), "wandb_api_key": "deadbeef"}
write_environment("start", files=["config.yaml"], settings=SimpleNamespace(**hyperparameters))

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(settings.get("seed", 3)))
torch.backends.cudnn.benchmark = False
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
generator = np.random.default_rng(0)
images = torch.from_numpy(generator.standard_normal((16, 1, 8, 8), dtype=np.float32))
if "nudge" in settings:
    model[4].bias.data[2] += 1e-3
data = TensorDataset(images, torch.arange(16) % 5)
order = torch.Generator().manual_seed(int(settings.get("order", 0)))
optimizer = torch.optim.SGD(model.parameters(), lr=hyperparameters["lr"], momentum=0.9)
for image, label in DataLoader(data, batch_size=8, shuffle=True, generator=order):
    loss = nn.functional.cross_entropy(model(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
Path("loss").write_text(repr(loss.item()))
"""

RUN_SH = """#!/bin/bash
# torchrun --lr 3
LR=${LR:-0.1}
MODEL_ARGS="
    --num-layers 1 \\
    --hidden-size 16
"
OPTIM_ARGS=(
    --lr 0.1   # the first
    --bf16
)
export WANDB_API_KEY=deadbeef
torchrun --nproc_per_node 1 train.py $MODEL_ARGS "${OPTIM_ARGS[@]}" --seed=7 2>&1 | tee log
"""

CONFIG_YAML = "model: {channels: 4, kernel: [3, 3]}\ntrain: {batch_size: 8, hub_token: deadbeef}\n"


def start(folder: Path, script: str, *arguments: str, files: Mapping[str, str] | None = None, **variables: str) -> Path:
    """Run a training in a new folder, with its launch script and settings in it, and return where its start is."""
    folder.mkdir(parents=True)
    texts = {"train.py": script, "run.sh": RUN_SH, "config.yaml": CONFIG_YAML, **(files or {})}
    for name, text in texts.items():
        (folder / name).write_text(text)
    command = [sys.executable, "train.py", *arguments]
    subprocess.run(command, cwd=folder, env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    return folder / "start"
