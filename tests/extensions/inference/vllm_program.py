"""Record vLLM and transformers on one small Llama: python vllm_program.py FOLDER TEMPERATURE TOP_P MODE.

The engine draws the tokens and notes the log probabilities that it returns in MODE, one of its ``logprobs_mode``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # The model is in this process.
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

from msprobe_hooks import record

PROMPTS = {"a": [5, 17, 23], "b": [33, 8, 51, 14], "c": [1, 2, 3, 4, 5, 6, 7]}


def save_model(folder: Path) -> None:
    """Save a Llama with random weights; heads of 32 elements are the smallest that vLLM's attention on a CPU takes."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=128,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    model.save_pretrained(folder)


def serve(model: Path, folder: Path, sampling: SamplingParams, mode: str) -> dict[str, list[int]]:
    """Record the engine, and return each request's tokens."""
    llm = LLM(
        str(model), skip_tokenizer_init=True, enforce_eager=True, dtype="float32", max_model_len=64, max_num_seqs=4,
        max_num_batched_tokens=8, enable_prefix_caching=False, logprobs_mode=mode, seed=3,
    )  # fmt: skip
    for name, prompt in PROMPTS.items():
        llm.llm_engine.add_request(name, {"prompt_token_ids": prompt}, sampling)
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    (served,) = llm.apply_model(lambda module: module)
    drawn: dict[str, list[float]] = {name: [] for name in PROMPTS}
    sequences = dict(PROMPTS)
    with record(folder, "L0", model=served, task="tensor", extra_info=False) as session:

        def note(module: object, arguments: object) -> None:
            batch = runner.input_batch
            starts = batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
            names = [next(name for name in PROMPTS if one.startswith(name)) for one in batch.req_ids]
            lengths = [scheduled[one] for one in batch.req_ids]
            logprobs = [
                None if place < len(PROMPTS[name]) else drawn[name][place - len(PROMPTS[name])]
                for name, start, length in zip(names, starts, lengths, strict=True)
                for place in range(start, start + length)
            ]
            session.note_tokens(names, lengths, starts=starts, logprobs=logprobs)

        scheduled: dict[str, int] = {}
        execute = runner.execute_model

        def execute_model(scheduler_output, *args, **kwargs):
            scheduled.clear()
            scheduled.update(scheduler_output.num_scheduled_tokens)
            return execute(scheduler_output, *args, **kwargs)

        runner.execute_model = execute_model
        served.register_forward_pre_hook(note)
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                (answer,) = output.outputs
                drawn[output.request_id] = [
                    found[token].logprob for token, found in zip(answer.token_ids, answer.logprobs, strict=True)
                ]
                sequences[output.request_id] = [*PROMPTS[output.request_id], *answer.token_ids]
            session.step()
    return sequences


def train(model: Path, folder: Path, sequences: dict[str, list[int]]) -> None:
    """Record transformers on the same sequences, padded on the right."""
    trained = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    length = max(map(len, sequences.values()))
    ids = torch.tensor([tokens + [0] * (length - len(tokens)) for tokens in sequences.values()])
    mask = torch.tensor([[1] * len(tokens) + [0] * (length - len(tokens)) for tokens in sequences.values()])
    with record(folder, "L0", model=trained, task="tensor", extra_info=False), torch.no_grad():
        trained(input_ids=ids, attention_mask=mask, use_cache=False)


if __name__ == "__main__":
    folder, temperature, top_p = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    save_model(folder / "model")
    sampling = SamplingParams(
        max_tokens=8, temperature=temperature, top_p=top_p, logprobs=0, detokenize=False, ignore_eos=True
    )
    sequences = serve(folder / "model", folder / "serve", sampling, sys.argv[4])
    train(folder / "model", folder / "train", sequences)
