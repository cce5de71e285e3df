"""Record one training step of a small model twice, alike, into the folders ``first`` and ``second`` of a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from msprobe_hooks import record


def main() -> None:
    for name in ("first", "second"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters())
        with record(str(Path(sys.argv[1]) / name), level="mix", model=model):
            model(torch.randn(8, 16, dtype=torch.bfloat16)).float().square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
