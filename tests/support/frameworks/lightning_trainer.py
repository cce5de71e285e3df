"""Lightning: mixed precision in bfloat16, batch norm and dropout."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn

from tests.support.frameworks.run import Run


class Regression(lightning.LightningModule):
    """A network whose squared output is made small."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.net = nn.Sequential(
            nn.Linear(8, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(16, 8),
            nn.GELU(),
            nn.Linear(8, 1),
        )

    def training_step(self, batch: Tensor, number: int) -> Tensor:
        loss = self.net(batch).square().mean()
        self.run.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Recording(lightning.Callback):
    """The lines of docs/integrations.md."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.run.start(module)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.run.end_step()


def train(run: Run) -> list[Tensor]:
    """Train three steps."""
    module = Regression(run)
    run.plant(module.net[4].weight)
    trainer = lightning.Trainer(
        max_steps=3,
        accelerator="cpu",
        precision="bf16-mixed",
        callbacks=[Recording(run)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(12, 8), batch_size=4, num_workers=0))
    return list(module.parameters())
