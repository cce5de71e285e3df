"""timm: a vision transformer with dropped paths, LAMB, and an average of its weights."""

from __future__ import annotations

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import Tensor

from tests.support.frameworks.run import Run


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    sizes = {"img_size": 32, "embed_dim": 48, "depth": 3, "num_heads": 3, "patch_size": 8}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=5, drop_path_rate=0.1, **sizes)
    run.plant(model.get_parameter("blocks.1.mlp.fc1.weight"))
    average = ModelEmaV3(model, decay=0.9)
    optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3)
    smoothed = LabelSmoothingCrossEntropy()
    for _ in range(2):
        images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,))
        run.start(model)
        loss = smoothed(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model)
        run.end_step()
        run.losses.append(loss.item())
    return [*model.parameters(), *average.parameters()]
