"""What watching a training costs: the CPU time of a watched step beyond a plain one, against reading the same tensors.

    python benchmarks/watching.py [--pairs 20] [--threads 1] [--only gpt2 resnet18 mlp]

Three training steps with AdamW in plain torch: GPT-2-like (recording.py's), ResNet-18-like, of images of 32 x 32, and
of four small layers.
A pair is a plain and a watched step, one after the other, the order turned from pair to pair; reported is the median of
the pairs' differences. What it is held against is measured in the same pair: `torch.linalg.vector_norm` in float64 of
each gradient, or `torch.aminmax` of each tensor, that the watched step has measured; and the step that msprobe's
TrainerMon watches, in ``.peer`` and ``.peer26`` where README.md's environments are. These share the pairs; without
them, this Python measures alone. Files are CSV, ten steps in each.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import ROOT, quote, table
from recording import BATCH, GPT2, SEQUENCE, VOCABULARY
from recording_vs_peer import ENVIRONMENTS
from torch import Tensor, nn

from msprobe_hooks import TrainerMon, watch

GRADIENTS = {"wg_distribution": True}
ALL = {
    **GRADIENTS,
    "xy_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "mg_direction": True,
}
EVERY_STATISTIC = ["norm", "min", "max", "mean", "zeros", "nans"]
CASES = {
    "gradients, norm": (GRADIENTS, ["norm"]),
    "all features, norm": (ALL, ["norm"]),
    "all features, norm min max mean": (ALL, ["norm", "min", "max", "mean"]),
    "all features, six statistics": (ALL, EVERY_STATISTIC),
}

# The most that watching may add, as a multiple of reading what is watched.
WANTED = {"gradients, norm": "at most 1.5", "all features, norm": "at most 3"}


class Residual(nn.Module):
    """Two convolutions with batch normalisation around which the input goes."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        """Map images (batch, channels, height, width) to images."""
        hidden = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(hidden)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two residual blocks: the layers of ResNet-18."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        widths = [64, 64, 128, 256, 512]
        self.stages = nn.ModuleList(
            nn.Sequential(Residual(before, width, 1 if before == width and not i else 2), Residual(width, width, 1))
            for i, (before, width) in enumerate(pairwise(widths))
        )
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        """Map images (batch, 3, height, width) to logits."""
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


def gpt2() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    return GPT2(), lambda model: F.cross_entropy(model(ids)[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))


def resnet18() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    return ResNet18(), lambda model: F.cross_entropy(model(images), labels)


def mlp() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """Return a net so small that its step is calls and hardly any arithmetic."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    values, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    return nn.Sequential(*layers, nn.Linear(64, 10)), lambda model: F.cross_entropy(model(values), labels)


MODELS = {"gpt2": gpt2, "resnet18": resnet18, "mlp": mlp}


class Training:
    """A model with its optimizer, and a step of them."""

    def __init__(self, make: Callable[[], tuple[nn.Module, Callable[[nn.Module], Tensor]]]) -> None:
        torch.manual_seed(0)
        self.model, self._loss = make()
        # A class of its own: msprobe 1.2.2 watches all optimizers of a class.
        self.optimizer = type("AdamW", (torch.optim.AdamW,), {})(self.model.parameters(), lr=1e-4)

    def step(self) -> None:
        """Train one step."""
        self.optimizer.zero_grad()
        self._loss(self.model).backward()
        self.optimizer.step()


def monitored(make: Any, monitor: Any, keys: dict[str, Any], ops: list[str], folder: Path) -> Training:
    """Return a training that a TrainerMon, ours or the peer's, watches."""
    training = Training(make)
    config = folder / "config.json"
    written = {"ops": ops, "step_count_per_record": 10}
    # The peer watches no module without targets.
    targets = {name: {} for name, _ in training.model.named_modules()} if monitor is not TrainerMon else {}
    config.write_text(json.dumps({"targets": targets, "all_xy": "xy_distribution" in keys, **keys, **written}))
    config.chmod(0o640)
    watching = monitor(str(config), params_have_main_grad=False)
    watching.set_monitor(training.model, grad_acc_steps=1, optimizer=training.optimizer)
    return training


def watched_tensors(make: Any, keys: dict[str, Any]) -> list[Tensor]:
    """Return copies of the tensors that a step of the monitored training measures."""
    training = Training(make)
    training.step()
    what = {
        "wg_distribution": ["gradients"],
        "xy_distribution": ["activations", "activation_gradients"],
        "mv_distribution": ["moments"],
        "param_distribution": ["parameters"],
        "mg_direction": [],
    }
    with watch(training.model, training.optimizer, what=[one for key in keys for one in what[key]], format="api") as w:
        seen: list[Tensor] = []
        measure = w.collection.meter.measure

        def note(tensors: Any) -> Any:
            seen.extend(tensor.clone() for tensor in tensors)
            return measure(tensors)

        w.collection.meter.measure = note
        training.step()
    return seen


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def norms(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        torch.linalg.vector_norm(tensor, dtype=torch.float64)


def extrema(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        if tensor.numel():
            torch.aminmax(tensor)


def timed(make: Any, keys: dict[str, Any], ops: list[str], monitors: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    """Return the seconds of ``plain``, monitors' and ``read`` runs, by turns, and how many ``tensors`` are read."""
    folder = Path(tempfile.mkdtemp())
    # Registered first, run last: monitors write at the end of the process.
    atexit.register(shutil.rmtree, folder)
    os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")
    tensors = watched_tensors(make, keys)
    reading = norms if keys == GRADIENTS else extrema
    watched = {name: monitored(make, monitor, keys, ops, folder) for name, monitor in monitors.items()}
    runs = {
        "plain": Training(make).step,
        **{name: one.step for name, one in watched.items()},
        "read": lambda: reading(tensors),
    }
    for run in [*runs.values(), *runs.values()]:
        run()
    times: dict[str, Any] = {name: [] for name in runs}
    for number in range(pairs):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            times[name].append(seconds(runs[name]))
    return {**times, "tensors": len(tensors)}


def timed_here(model: str, pairs: int, threads: int) -> Iterator[dict[str, Any]]:
    """Yield what each case takes in this environment, msprobe's TrainerMon as ``peer`` where it is installed."""
    torch.set_num_threads(threads)
    monitors: dict[str, Any] = {"ours": TrainerMon}
    if importlib.util.find_spec("msprobe"):
        from msprobe.pytorch import TrainerMon as Peer

        monitors["peer"] = Peer
    for keys, ops in CASES.values():
        yield timed(MODELS[model], keys, ops, monitors, pairs)


def timed_in(environment: Path, model: str, pairs: int, threads: int) -> list[dict[str, Any]]:
    """Return the same of another environment."""
    words = [
        environment / "bin" / "python",
        __file__,
        "--here",
        model,
        "--pairs",
        str(pairs),
        "--threads",
        str(threads),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "hook_lib"), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    # The peer prints lines of its own.
    found = [json.loads(line.removeprefix("times ")) for line in done.stdout.splitlines() if line.startswith("times ")]
    if done.returncode or len(found) != len(CASES):
        raise SystemExit(f"{model} in {environment}:\n{done.stderr[-2000:]}")
    return found


def row(name: str, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a case's row; ``found`` is what it took in each environment."""

    def over(whose: str, other: str, names: list[str]) -> float:
        """Return the median of the pairs' quotients of times, of a monitor what it adds."""
        return statistics.median(
            one / another
            for key in names
            for one, another in zip(added(found[key], whose), added(found[key], other), strict=True)
        )

    every = [*found]
    quote(f"{name}: added / reading", over("ours", "read", every), wanted=WANTED.get(name.partition(", ")[2], ""))
    quote(f"{name}: watched / plain step", 1 + over("ours", "plain", every))
    cells = [
        name,
        f"{middle(found, 'plain'):.0f}",
        f"{next(iter(found.values()))['tensors']}, {middle(found, 'read'):.1f}",
        f"{middle(found, 'ours'):.1f}",
        f"{over('ours', 'read', every):.2f}",
        f"{1 + over('ours', 'plain', every):.3f}",
    ]
    for key in ENVIRONMENTS:
        if "peer" in found.get(key, {}):
            quote(f"{name}: added / added by {key}", over("ours", "peer", [key]), wanted="at most 0.33")
        cells.append(f"{over('ours', 'peer', [key]):.2f}" if "peer" in found.get(key, {}) else "-")
    return cells


def added(times: Mapping[str, Any], whose: str) -> list[float]:
    """Return the seconds of each run, of a monitor those beyond the plain step of the pair."""
    if whose in ("plain", "read"):
        return list(times[whose])
    return [one - plain for one, plain in zip(times[whose], times["plain"], strict=True)]


def middle(found: Mapping[str, Mapping[str, Any]], whose: str) -> float:
    """Return the median over all environments in milliseconds."""
    return 1e3 * statistics.median(one for times in found.values() for one in added(times, whose))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--here", choices=MODELS, help="print the times of this model in this environment as JSON")
    arguments = parser.parse_args()
    if arguments.here:
        for times in timed_here(arguments.here, arguments.pairs, arguments.threads):
            print("times", json.dumps(times), flush=True)
        return
    environments = {name: folder for name, folder in ENVIRONMENTS.items() if folder.exists()}
    environments = environments or {"here": Path(sys.prefix)}
    share = max(1, arguments.pairs // len(environments))
    loads = [os.getloadavg()[0]]
    rows = []
    for model in arguments.only:
        runs = {key: timed_in(folder, model, share, arguments.threads) for key, folder in environments.items()}
        for place, case in enumerate(CASES):
            rows.append(row(f"{model}, {case}", {key: cases[place] for key, cases in runs.items()}))
            print(*rows[-1], sep="; ", file=sys.stderr, flush=True)
        loads.append(os.getloadavg()[0])
    where = f"torch {torch.__version__}, {os.cpu_count()} cores, load {min(loads):.1f} to {max(loads):.1f}"
    print(f"{share} pairs in each of {', '.join(environments)}; {where}; medians of CPU time\n")
    header = ["", "plain step ms", "tensors, reading them ms", "added ms", "added / reading", "watched / plain step"]
    print(table([*header, *(f"added / added by {key}" for key in ENVIRONMENTS)], rows))


if __name__ == "__main__":
    main()
