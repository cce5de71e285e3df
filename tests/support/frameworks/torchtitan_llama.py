"""TorchTitan's Trainer with its debug Llama on four gloo ranks: FSDP2 and tensor parallelism, two of each."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torchtitan.tools import utils

# Without an accelerator TorchTitan takes CUDA; its other modules read both names when they are imported.
utils.device_type, utils.device_module = "cpu", torch.cpu

from torchtitan.components import metrics  # noqa: E402
from torchtitan.config import ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import utils as distributed  # noqa: E402
from torchtitan.hf_datasets import DatasetConfig, text_datasets  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from tests.support.frameworks.run import Run  # noqa: E402
from tests.support.frameworks.tiny_llama import VOCABULARY, sentences, tokenizer  # noqa: E402


class CpuMemory:
    """What the trainer reads of a device's memory; torch.cpu has no such numbers."""

    device_name = "cpu"

    def get_peak_stats(self) -> metrics.DeviceMemStats:
        return metrics.DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self) -> None:
        pass


metrics.build_device_memory_monitor = CpuMemory
# It calls torch.distributed.set_timeout, which is newer than the pinned torch.
distributed.set_pg_timeouts = lambda timeout, parallel_dims: None
text_datasets.DATASETS["sentences"] = DatasetConfig(
    path="",
    loader=lambda path: Dataset.from_dict({"text": sentences(64, 12)}),
    sample_processor=lambda sample: sample["text"],
)


class RecordedTrainer(Trainer):
    """The lines of docs/integrations.md around a step."""

    run: Run

    def train_step(self, data_iterator: Any) -> None:
        self.run.start(self.model_parts)
        super().train_step(data_iterator)
        self.run.end_step()
        self.run.losses.append(self.loss.item())

    def forward_backward_step(self, **given: Any) -> Tensor:
        self.loss: Tensor = super().forward_backward_step(**given).detach()
        return self.loss


def configuration(run: Run) -> Trainer.Config:
    """Return the debug model's configuration, with two layers, sixty-four words and in float32."""
    config = llama3_debugmodel()
    model = config.model_spec.model
    # Smaller than it is: a recording holds each weight at each call.
    model.layers = model.layers[:2]
    words = len(VOCABULARY)
    model.vocab_size = model.tok_embeddings.num_embeddings = model.lm_head.out_features = words
    config.loss.loss_fn.global_vocab_size = words
    for layer in model.layers:
        # FlexAttention is compiled always, and compiled code makes no calls that can be seen.
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
        layer.attention.rope.max_seq_len = 16
    assets = run.folder / f"assets_{run.kind}{run.rank}"
    tokenizer().save_pretrained(assets)
    config.hf_assets_path = str(assets)
    config.dump_folder = str(run.folder / "outputs")
    config.dataloader.dataset = "sentences"
    config.debug.seed = 0
    config.validator.enable = False
    config.training = TrainingConfig(
        local_batch_size=2, seq_len=16, steps=2, mixed_precision_param="float32", disable_cuda_graphs=True
    )
    # The default, spmd_types, needs a newer torch than the pinned one.
    config.parallelism = ParallelismConfig(
        data_parallel_shard_degree=2, tensor_parallel_degree=2, spmd_backend="partial_dtensor"
    )
    return config


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    trainer = RecordedTrainer(configuration(run))
    trainer.run = run
    [model] = trainer.model_parts
    for part in model.modules():
        if isinstance(part, FSDPModule):
            # TorchTitan divides gradients itself; gloo has no sum that multiplies first.
            part.set_force_sum_reduction_for_comms(True)
    if run.rank == 0:
        run.plant(model.get_parameter("layers.1.feed_forward.w1.weight").to_local())
    trainer.train()
    trainer.close()
    return [one.to_local() for one in model.parameters()]
