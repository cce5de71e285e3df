"""TRL's supervised fine-tuning, with packed sentences."""

from __future__ import annotations

from datasets import Dataset
from torch import Tensor
from trl import SFTConfig, SFTTrainer

from tests.support.frameworks.run import Run
from tests.support.frameworks.tiny_llama import ARGUMENTS, Recording, sentences, tiny_llama, tokenizer


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    model = tiny_llama()
    run.plant(model.get_parameter("model.layers.1.mlp.down_proj.weight"))
    SFTTrainer(
        model,
        args=SFTConfig(str(run.folder / "trainer"), max_length=24, packing=True, **ARGUMENTS),
        train_dataset=Dataset.from_dict({"text": sentences(16, 12)}),
        processing_class=tokenizer(),
        callbacks=[Recording(run)],
    ).train()
    return list(model.parameters())
