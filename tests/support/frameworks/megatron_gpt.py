"""Megatron-core's GPT, schedules, data parallelism and optimizer on two gloo ranks; the variant says what is split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.support.frameworks.run import Run
from tests.support.frameworks.tiny_llama import VOCABULARY, token_ids


def _on_a_cpu(create: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def created(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        return create(*args, device="cpu" if device == "cuda" else device, **kwargs)

    return created


# Megatron-core names CUDA for counters and buffers, and takes its random numbers from CUDA's generator.
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *args: None
torch.cuda.get_rng_state = torch.get_rng_state
torch.zeros, torch.tensor, torch.empty = map(_on_a_cpu, (torch.zeros, torch.tensor, torch.empty))

from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

tensor_parallel.random._get_cuda_rng_state = lambda **others: torch.get_rng_state()
tensor_parallel.random._set_cuda_rng_state = lambda state, **others: torch.set_rng_state(state)

LENGTH, SEQUENCES, MICRO_BATCHES = 16, 2, 2


def forward_step(batches: Iterator[Tensor], model: torch.nn.Module) -> tuple[Tensor, Callable[..., Any]]:
    """Return the loss of each token of a micro batch, or a stage's activations, and what reduces the losses."""
    tokens = next(batches)
    positions = torch.arange(LENGTH).expand(SEQUENCES, -1)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1).expand(SEQUENCES, 1, -1, -1)
    return model(tokens[:, :-1], positions, mask, labels=tokens[:, 1:]), _mean


def _mean(losses: Tensor) -> tuple[Tensor, Tensor]:
    mean = losses.mean()
    return mean, mean.detach()


def train(run: Run, variant: str) -> list[Tensor]:
    """Train two steps of two micro batches, with tensor (``tp``), pipeline (``pp``) or data (``dp``) parallelism.

    Data parallelism has the optimizer that splits its states over the ranks.
    """
    torch.distributed.init_process_group("gloo")
    sizes = {
        "tensor_model_parallel_size": 2 if variant == "tp" else 1,
        "pipeline_model_parallel_size": 2 if variant == "pp" else 1,
    }
    parallel_state.initialize_model_parallel(**sizes)
    tensor_parallel.model_parallel_cuda_manual_seed(0)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        use_cpu_initialization=True,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        masked_softmax_fusion=False,
        pipeline_dtype=torch.float32,
        finalize_model_grads_func=finalize_model_grads,
        **sizes,
    )
    gpt = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=len(VOCABULARY),
        max_sequence_length=LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    if run.rank == (1 if variant == "pp" else 0):
        run.plant(gpt.decoder.layers[-1].mlp.linear_fc1.weight)
    splits_optimizer = variant == "dp"
    model = DistributedDataParallel(
        config, DistributedDataParallelConfig(use_distributed_optimizer=splits_optimizer), gpt
    )
    # The distributed optimizer takes parameters by the name of their type, and knows those of CUDA alone.
    with patch.object(torch.nn.Parameter, "type", lambda parameter: "torch.cuda.FloatTensor", create=True):
        optimizer = get_megatron_optimizer(
            OptimizerConfig(lr=0.01, clip_grad=0.0, use_distributed_optimizer=splits_optimizer), [model]
        )
    torch.manual_seed(parallel_state.get_data_parallel_rank())
    step = get_forward_backward_func()
    for _ in range(2):
        batches = iter([token_ids(SEQUENCES, LENGTH + 1) for _ in range(MICRO_BATCHES)])
        run.start([model])
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = step(
            forward_step_func=forward_step,
            data_iterator=batches,
            model=[model],
            num_microbatches=MICRO_BATCHES,
            seq_length=LENGTH,
            micro_batch_size=SEQUENCES,
            forward_only=False,
        )
        optimizer.step()
        run.end_step()
        # The last stage alone has losses; the test asks for those of each rank.
        loss = torch.stack(losses).mean() if losses else torch.zeros(())
        last = parallel_state.get_pipeline_model_parallel_last_rank()
        torch.distributed.broadcast(loss, last, parallel_state.get_pipeline_model_parallel_group())
        run.losses.append(loss.item())
    return list(model.parameters())
