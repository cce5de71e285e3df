"""diffusers: a UNet that is conditioned on text learns the noise that a scheduler added."""

from __future__ import annotations

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from torch import Tensor
from torch.nn import functional

from tests.support.frameworks.run import Run


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    model = UNet2DConditionModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16,),
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=16,
        norm_num_groups=8,
        attention_head_dim=8,
    )
    run.plant(model.get_parameter("mid_block.attentions.0.transformer_blocks.0.attn2.to_v.weight"))
    scheduler = DDPMScheduler(100)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        images, noise, text = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8), torch.randn(2, 5, 16)
        times = torch.randint(0, 100, (2,))
        run.start(model)
        noisy = scheduler.add_noise(images, noise, times)
        loss = functional.mse_loss(model(noisy, times, text).sample, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.end_step()
        run.losses.append(loss.item())
    return list(model.parameters())
