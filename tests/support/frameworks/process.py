"""``python -m tests.support.frameworks.process TRAINING FOLDER RANKS``: runs a framework's training three times.

A training is a module here; what follows a colon is a variant of it. The module is imported once; each run, or each
rank of one, is a process forked from that.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from socket import create_server

import torch
from torch import Tensor

from tests.support.frameworks.run import KINDS, Run


def main(training: str, folder: Path, ranks: int) -> int:
    """Run a training in each way and return how many processes failed."""
    torch.set_num_threads(1)
    let_torchvision_load()
    name, *variant = training.split(":")
    module = import_module(f"tests.support.frameworks.{name}")
    failed = 0
    for kind in KINDS:
        port = _free_port()
        processes = [_forked(module.train, variant, Run(kind, folder, rank), ranks, port) for rank in range(ranks)]
        failed += sum(os.waitpid(process, 0)[1] != 0 for process in processes)
    return failed


def _forked(train: Callable[..., list[Tensor]], variant: list[str], run: Run, ranks: int, port: int) -> int:
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        if ranks > 1:
            os.environ |= {"RANK": str(run.rank), "LOCAL_RANK": str(run.rank), "WORLD_SIZE": str(ranks)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        torch.manual_seed(0)
        run.write_outcome(train(run, *variant))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def let_torchvision_load() -> None:
    """Name the operators that torchvision's Python part expects, where its compiled part is for CUDA and cannot load.

    No training here calls them; transformers, Lightning and timm import torchvision.
    """
    from importlib.util import find_spec

    compiled = next(Path(find_spec("torchvision").submodule_search_locations[0]).glob("_C*.so"))
    try:
        torch.ops.load_library(compiled)
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
