"""Record one training step of one model with msprobe or with msprobe_hooks, whichever is asked for.

    python benchmarks/roundtrip/record_step.py msprobe|msprobe_hooks FAMILY LEVEL TASK FOLDER [--risk-level ALL]

TASK is statistics, md5 or tensor. Both read the same config.json and get the same calls: construct, start, step of
the model (zero_grad, forward, loss, backward, AdamW), stop, step. The loss is printed.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import torch
from families import FAMILIES, MODEL_SEED, STEP_SEED, seed


def main() -> None:
    """Record as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=["msprobe", "msprobe_hooks"])
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("level", choices=["L0", "L1", "mix"])
    parser.add_argument("task", choices=["statistics", "md5", "tensor"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--risk-level", default="ALL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seed(MODEL_SEED)
    model, loss = FAMILIES[options.family]()
    # Version 1.2.2 replaces entries of torch.ops.aten; what imports them late, as optimizers do, fails.
    importlib.import_module("torch._dynamo")
    package = importlib.import_module("msprobe.pytorch" if options.tool == "msprobe" else "msprobe_hooks")
    debugger = package.PrecisionDebugger(config_path=str(config(options)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seed(STEP_SEED)
    debugger.start(model)
    optimizer.zero_grad()
    value = loss()
    value.backward()
    optimizer.step()
    debugger.stop()
    debugger.step()
    print("loss", float(value.detach()))


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
                "risk_level": options.risk_level,
                task: section,
            }
        )
    )
    path.chmod(0o640)
    return path


if __name__ == "__main__":
    main()
