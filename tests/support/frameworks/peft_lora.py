"""PEFT: a Llama with LoRA and dropout, in a loop of one's own."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from tests.support.frameworks.run import Run
from tests.support.frameworks.tiny_llama import tiny_llama, token_ids


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, init_lora_weights=False)
    model = get_peft_model(tiny_llama(), config)
    run.plant(model.get_parameter("base_model.model.model.layers.1.self_attn.v_proj.lora_A.default.weight"))
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    for _ in range(2):
        tokens = token_ids(2, 16)
        run.start(model)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.end_step()
        run.losses.append(loss.item())
    return trained
