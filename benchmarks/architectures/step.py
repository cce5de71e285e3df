"""Train one step of an architecture, recorded and not, and say what of it differs and what it cost.

Written into the architecture's folder: the recording, and what is said of it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from architectures import ARCHITECTURES
from architectures.training import SEED, Training, seed
from msprobe_hooks import record

LEVEL = "mix"
TIMED = 3
SAID = "said.json"

Recording = Callable[[nn.Module], AbstractContextManager[object]]


def plain(model: nn.Module) -> AbstractContextManager[object]:
    """Record nothing."""
    return nullcontext()


def recorded(folder: Path, model: nn.Module) -> AbstractContextManager[object]:
    """Record statistics of calls and modules."""
    return record(folder, level=LEVEL, model=model)


def made(name: str) -> Training:
    """Return the same training each time, at the same point of all random numbers."""
    seed()
    training = ARCHITECTURES[name].make()
    seed(SEED + 1)
    return training


def trained(training: Training, recording: Recording) -> dict[str, Tensor | None]:
    """Train a step and return all that it changed, the state of the random numbers included."""
    with recording(training.model):
        loss = training.step()
    model = training.model
    return {
        "loss": loss,
        **{f"gradient of {name}": each.grad for name, each in model.named_parameters()},
        **{name: each.detach() for name, each in model.state_dict().items() if isinstance(each, Tensor)},
        "random numbers": torch.get_rng_state(),
    }


def differing(one: dict[str, Tensor | None], other: dict[str, Tensor | None]) -> list[str]:
    """Return the names of what is not the same, bit by bit."""
    return [name for name in one if bits(one[name]) != bits(other[name])]


def bits(tensor: Tensor | None) -> tuple[object, ...]:
    """Return what tells a tensor from every other one."""
    if tensor is None:
        return ()
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def cpu_seconds(training: Training, recording: Recording) -> float:
    """Return the CPU time of a step, opening and writing its recording included."""
    start = time.process_time()
    with recording(training.model):
        training.step()
    return time.process_time() - start


def main(name: str, folder: Path) -> None:
    """Train, compare and time; one thread, so that sums have one order."""
    torch.set_num_threads(1)
    differences = differing(trained(made(name), plain), trained(made(name), partial(recorded, folder)))
    training = made(name)
    seconds: dict[str, list[float]] = {"plain": [], "recorded": []}
    for _ in range(TIMED):
        seconds["plain"].append(cpu_seconds(training, plain))
        with tempfile.TemporaryDirectory() as elsewhere:
            seconds["recorded"].append(cpu_seconds(training, partial(recorded, Path(elsewhere))))
    least = {kind: min(each) for kind, each in seconds.items()}
    (folder / SAID).write_text(json.dumps({"differences": differences, **least}))
