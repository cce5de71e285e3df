"""Write ``<version>.json``: what msprobe writes for the configurations of its own tests.

Run from the repository's root, with the Python of an environment that has msprobe and torch::

    PYTHONPATH=. python tests/data/monitor_configurations/make.py
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from contextlib import nullcontext, suppress
from importlib.metadata import version
from pathlib import Path

from tests.support.trainings.monitor_configurations import CONFIGURATIONS, FORGOTTEN, train, write, written


def run(name: str, folder: Path) -> None:
    """Train with one configuration; msprobe keeps state in its modules, so that each has a process of its own."""
    os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")
    import msprobe.pytorch.monitor.utils
    import torch
    from msprobe.pytorch import TrainerMon

    msprobe.pytorch.monitor.utils.device = "cpu"
    if name == "cc":
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    configuration = write((CONFIGURATIONS | FORGOTTEN)[name], folder / "config.json")
    monitor = TrainerMon(str(configuration), params_have_main_grad=False)
    # With print_struct msprobe ends the training by an exception.
    with suppress(Exception) if name == "struct" else nullcontext():
        train(monitor, forgets_bias=name in FORGOTTEN, reduces=name == "cc")
    if hasattr(writer := getattr(monitor, "summary_writer", None), "close"):
        writer.close()


def main() -> None:
    """Run all configurations."""
    context, found = multiprocessing.get_context("spawn"), {}
    for name in CONFIGURATIONS | FORGOTTEN:
        with tempfile.TemporaryDirectory() as folder:
            process = context.Process(target=run, args=(name, Path(folder)))
            process.start()
            process.join()
            found[name] = written(Path(folder, "out"))
    text = json.dumps(found, indent=1)
    Path(__file__).with_name(f"{version('mindstudio-probe')}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
