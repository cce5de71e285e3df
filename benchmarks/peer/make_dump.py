"""Record one training step of a small GPT-2 on the CPU with mindstudio-probe 1.2.2."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

# Last: the peer wraps torch, and transformers can no longer be imported then.
from msprobe.pytorch import PrecisionDebugger  # isort: skip

SEED = 20240917


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=31)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = GPT2LMHeadModel(
        GPT2Config(
            n_layer=options.layers,
            n_embd=options.hidden,
            n_head=4,
            n_positions=options.sequence,
            vocab_size=options.vocabulary,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            attn_implementation="eager",
        )
    ).to(getattr(torch, options.dtype))
    tokens = torch.randint(0, options.vocabulary, (options.batch, options.sequence))

    debugger = PrecisionDebugger(config_path=str(write_config(options.folder)))
    debugger.start(model)
    scores = model(input_ids=tokens).logits[:, :-1].reshape(-1, options.vocabulary)
    torch.nn.functional.cross_entropy(scores.float(), tokens[:, 1:].reshape(-1)).backward()
    debugger.stop()
    debugger.step()


def write_config(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    selection: dict[str, object] = {"scope": [], "list": [], "data_mode": ["all"]}
    path.write_text(
        json.dumps(
            {
                "task": "statistics",
                "dump_path": str(folder),
                "rank": [],
                "step": [],
                "level": "L1",
                "statistics": {**selection, "summary_mode": "statistics"},
            }
        )
    )
    # The peer refuses files that others may write.
    path.chmod(0o640)
    return path


if __name__ == "__main__":
    main()
