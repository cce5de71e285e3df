"""Time plain or recorded training steps of a small GPT-2 on the CPU; prints the CPU seconds of each step.

Runs in the peer's environment. ``--tool`` names the package whose ``PrecisionDebugger`` records: ``msprobe.pytorch``,
``msprobe_hooks`` or ``none``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from pathlib import Path

import torch
import torch._dynamo  # the peer replaces what torch.optim would import from it later
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", default="none")
    parser.add_argument("--level", default="L1")
    parser.add_argument("--task", default="statistics")
    parser.add_argument("--summary-mode", default="statistics")
    parser.add_argument("--pert-mode", default="improve_precision", help="of task free_benchmark")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--stopped", action="store_true", help="install the hooks, stop, and time what is left of them")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"n_layer": 4, "n_embd": 256, "n_head": 4, "n_positions": 128, "vocab_size": 512}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, use_cache=False, attn_implementation="eager"))
    tokens = torch.randint(0, 512, (2, 128))

    def step() -> None:
        model.zero_grad()
        scores = model(input_ids=tokens).logits[:, :-1].reshape(-1, 512)
        torch.nn.functional.cross_entropy(scores, tokens[:, 1:].reshape(-1)).backward()

    step()
    with tempfile.TemporaryDirectory() as folder:
        debugger = None
        if options.tool != "none":
            config = write_config(Path(folder), options.level, options.task, options.summary_mode, options.pert_mode)
            debugger = importlib.import_module(options.tool).PrecisionDebugger(config_path=str(config))
        seconds = [timed(step, debugger, model, stopped=options.stopped) for _ in range(options.steps + 1)]
        if debugger is not None:
            debugger.stop()
    print("seconds", json.dumps(sorted(seconds[1:])))


def timed(step, debugger, model, *, stopped: bool) -> float:
    start = time.process_time()
    if debugger is not None:
        debugger.start(model)
        if stopped:
            debugger.stop()
            start = time.process_time()
    step()
    if debugger is not None and not stopped:
        debugger.stop()
        debugger.step()
    return time.process_time() - start


def write_config(folder: Path, level: str, task: str, summary_mode: str, pert_mode: str) -> Path:
    path = folder / "config.json"
    selection: dict[str, object] = {"scope": [], "list": [], "data_mode": ["all"]}
    path.write_text(
        json.dumps(
            {
                "task": task,
                "dump_path": str(folder / "dump"),
                "rank": [],
                "step": [],
                "level": level,
                "statistics": {**selection, "summary_mode": summary_mode},
                "tensor": selection,
                "overflow_check": {"overflow_nums": -1},
                "free_benchmark": {
                    "scope": [],
                    "list": [],
                    "fuzz_device": "npu",
                    "pert_mode": pert_mode,
                    "handler_type": "check",
                    "fuzz_level": "L1",
                    "fuzz_stage": "forward",
                    "if_preheat": False,
                    "preheat_step": 15,
                    "max_sample": 20,
                },
            }
        )
    )
    path.chmod(0o640)
    return path


if __name__ == "__main__":
    main()
