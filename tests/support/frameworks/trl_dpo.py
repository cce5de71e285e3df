"""TRL's preference optimization: a policy and a reference that starts as a copy of it."""

from __future__ import annotations

import copy

from datasets import Dataset
from torch import Tensor
from trl import DPOConfig, DPOTrainer

from tests.support.frameworks.run import Run
from tests.support.frameworks.tiny_llama import ARGUMENTS, Recording, sentences, tiny_llama, tokenizer


def train(run: Run) -> list[Tensor]:
    """Train two steps. The reference is without the fault."""
    model = tiny_llama()
    reference = copy.deepcopy(model)
    run.plant(model.get_parameter("model.layers.1.mlp.down_proj.weight"))
    columns = {"prompt": sentences(8, 4), "chosen": sentences(8, 5, seed=1), "rejected": sentences(8, 5, seed=2)}
    DPOTrainer(
        model,
        ref_model=reference,
        args=DPOConfig(str(run.folder / "trainer"), max_length=24, **ARGUMENTS),
        train_dataset=Dataset.from_dict(columns),
        processing_class=tokenizer(),
        callbacks=[Recording(run)],
    ).train()
    return list(model.parameters())
