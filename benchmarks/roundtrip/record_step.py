"""Record one training step of one model with msprobe or with msprobe_hooks, whichever is asked for.

    python benchmarks/roundtrip/record_step.py msprobe|msprobe_hooks|nothing FAMILY LEVEL TASK FOLDER

TASK is statistics, md5 or tensor. Both read the same config.json and get the same calls: construct, start, step of
the model (zero_grad, forward, loss, backward, AdamW), stop, step. Written next to the dump, as ``step.json``: the loss
and a checksum of all gradients, which tell whether recording changed anything.
"""

from __future__ import annotations

import argparse
import importlib
import json
import zlib
from pathlib import Path
from typing import Any

import torch

from tests.corpus.families import FAMILIES, MODEL_SEED, STEP_SEED, seed


class Nothing:
    """What a step runs under when it is not recorded."""

    def start(self, model: torch.nn.Module) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""


def main() -> None:
    """Record as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=["msprobe", "msprobe_hooks", "nothing"])
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("level", choices=["L0", "L1", "mix"])
    parser.add_argument("task", choices=["statistics", "md5", "tensor"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seed(MODEL_SEED)
    model, loss = FAMILIES[options.family]()
    debugger = tool(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seed(STEP_SEED)
    debugger.start(model)
    optimizer.zero_grad()
    value = loss()
    value.backward()
    optimizer.step()
    debugger.stop()
    debugger.step()
    result = {"loss": float(value.detach()), "gradients": checksum(model)}
    (options.folder / "step.json").write_text(json.dumps(result))


def tool(options: argparse.Namespace) -> Any:
    """Return the debugger to run under."""
    path = config(options)
    if options.tool == "nothing":
        return Nothing()
    # Version 1.2.2 replaces entries of torch.ops.aten; what imports them late, as optimizers do, fails.
    importlib.import_module("torch._dynamo")
    package = importlib.import_module("msprobe.pytorch" if options.tool == "msprobe" else "msprobe_hooks")
    return package.PrecisionDebugger(config_path=str(path))


def checksum(model: torch.nn.Module) -> str:
    """Return the CRC-32 of all gradients, in the order of the parameters."""
    crc = 0
    for parameter in model.parameters():
        if parameter.grad is not None:
            crc = zlib.crc32(parameter.grad.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), crc)
    return f"{crc:08x}"


def config(options: argparse.Namespace) -> Path:
    """Write the config.json of a recording and return its path."""
    task = "tensor" if options.task == "tensor" else "statistics"
    section = {"scope": [], "list": [], "data_mode": ["all"]}
    if task == "statistics":
        section["summary_mode"] = options.task
    options.folder.mkdir(parents=True, exist_ok=True)
    path: Path = options.folder / "config.json"
    path.write_text(
        json.dumps(
            {
                "task": task,
                "dump_path": str(options.folder),
                "rank": [],
                "step": [],
                "level": options.level,
                "risk_level": "ALL",
                task: section,
            }
        )
    )
    path.chmod(0o640)
    return path


if __name__ == "__main__":
    main()
