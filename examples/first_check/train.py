"""Record one training step of a small model."""

import torch

from msprobe_hooks import record

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 32),
    torch.nn.GELU(),
    torch.nn.Linear(32, 4),
    torch.nn.Softmax(-1),
)
batch = torch.randn(8, 16)

with record("run"):
    loss = model(batch).log().mean()
    loss.backward()

print("loss", loss.item())
