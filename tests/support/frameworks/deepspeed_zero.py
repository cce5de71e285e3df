"""DeepSpeed on two gloo ranks; the variant is the stage of ZeRO."""

from __future__ import annotations

import deepspeed
import torch
from torch import Tensor, nn

from tests.support.frameworks.run import Run


def train(run: Run, variant: str) -> list[Tensor]:
    """Train two steps, in bfloat16 where optimizer states are split; each rank has another batch."""
    stage = int(variant)
    deepspeed.init_distributed("gloo")
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    run.plant(model.get_parameter("3.weight"))
    dtype = torch.bfloat16 if stage else torch.float32
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 1e-2),
        config={
            "train_batch_size": 8,
            "bf16": {"enabled": stage > 0},
            "zero_allow_untested_optimizer": True,
            # Its buffers are as large as the buckets, and a recording holds what is read.
            "zero_optimization": {"stage": stage, "reduce_bucket_size": 4096, "stage3_prefetch_bucket_size": 4096},
        },
    )
    batches = torch.Generator().manual_seed(run.rank)
    for _ in range(2):
        batch = torch.randn(4, 8, generator=batches).to(dtype)
        run.start(engine)
        loss = engine(batch).float().square().mean()
        engine.backward(loss)
        engine.step()
        run.end_step()
        run.losses.append(loss.item())
    engine.destroy()
    return list(model.parameters())
