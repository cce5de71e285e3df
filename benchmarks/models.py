"""Real architectures with random weights: a training step, recorded and not, compared bit by bit, and its dump checked.

    python benchmarks/models.py [--only llama_bf16 swin ...] [--seeds 0 1 2] [--out FILE]

Each step runs in a process of its own and each check under ``--msprobe-isolate``, so that a crash costs one
architecture or one record. On a healthy CPU every failure is a false alarm; status 1 says that there was one, or that
recording changed a bit. README.md says what must be installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from architectures import ARCHITECTURES, step
from measure import logged, plugin_words, scratch, table
from real_dumps import finished

LIBRARIES = ("torch", "transformers", "torchvision", "timm", "diffusers", "torch_geometric")
TIMES = "CPU ms plain, recorded (ratio)"


@dataclass
class Trial:
    """What came of an architecture: what recording its step changed and cost, and how its records ended, all seeds."""

    name: str
    differences: Sequence[str]
    plain: float
    recorded: float
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    skips: Counter[tuple[str, str]] = field(default_factory=Counter)
    alarms: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def folder(self) -> Path:
        """Where its step is recorded."""
        return folder_of(self.name)

    def add(self, seed: int, record: str, outcome: str, reason: str) -> None:
        """Count how a record ended."""
        api, direction = record.rsplit(".", 2)[::2]
        self.outcomes[direction, outcome] += 1
        if outcome == "skip":
            self.skips[f"{api} {direction}", reason] += 1
        elif outcome != "pass":
            self.alarms[f"{record}: {outcome}: {reason}"].append(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, help="also write the page there")
    options = parser.parse_args()

    trials = {name: Trial(name, **said) for name in options.only if (said := trained(name)) is not None}
    broken = [name for name in options.only if name not in trials]
    for seed in options.seeds if trials else ():
        check(trials, seed)
    text = "\n".join(page(list(trials.values()), broken, options.seeds))
    print(text)
    if options.out:
        options.out.write_text(text)
    raise SystemExit(bool(broken) or any(trial.alarms or trial.differences for trial in trials.values()))


def check(trials: Mapping[str, Trial], seed: int) -> None:
    """Check the dumps of all, inputs drawn from this seed."""
    dumps = [word for trial in trials.values() for word in ("--msprobe-dump", trial.folder)]
    words = plugin_words(*dumps, "--msprobe-device", "cpu", "--msprobe-seed", str(seed), "--msprobe-isolate")
    for item, log in logged(words).items():
        path, _, record = item.partition("::")
        trials[architecture_of(path)].add(seed, record, *finished(log))
    print(f"seed {seed} is checked", file=sys.stderr, flush=True)


def trained(name: str) -> dict[str, Any] | None:
    """Train an architecture's step, recorded and not, and return what is said of it; None where its process ended."""
    shutil.rmtree(folder_of(name), ignore_errors=True)
    # Forked: the libraries are imported once.
    process = multiprocessing.get_context("fork").Process(target=step.main, args=(name, folder_of(name)))
    process.start()
    process.join()
    print(f"{name}: trained" if process.exitcode == 0 else f"{name}: ended with {process.exitcode}", file=sys.stderr)
    return json.loads((folder_of(name) / step.SAID).read_bytes()) if process.exitcode == 0 else None


def folder_of(name: str) -> Path:
    """Return where an architecture's step is recorded."""
    return scratch() / "models" / name


def architecture_of(dump: str) -> str:
    """Return the architecture of a dump below its folder: ``NAME/step0/rank/dump.json``."""
    return Path(dump).parts[-4]


def page(trials: Sequence[Trial], broken: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """Yield the page: a line per architecture, why records were skipped, and what is wrong."""
    libraries = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
    yield f"{len(trials)} architectures, seeds {' '.join(map(str, seeds))}, {libraries}, {os.cpu_count()} cores\n"
    header = ["name", "architecture", "calls + backward", "judged", "alarms", "skipped", "same bits", TIMES]
    yield table(header, [line(trial, len(seeds)) for trial in trials])

    skips: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for trial in trials:
        for skip, count in trial.skips.items():
            skips[skip].append(f"{trial.name} {count}")
    if skips:
        header = ["skipped", "because", "architectures, records over all seeds"]
        yield table(header, [[f"`{api}`", reason, ", ".join(where)] for (api, reason), where in skips.items()])
    for trial in trials:
        for alarm, at in trial.alarms.items():
            yield f"* {trial.name}, seeds {' '.join(map(str, at))}: {alarm}"
        if trial.differences:
            yield f"* {trial.name}: recording changed {', '.join(trial.differences)}"
    yield from (f"* {name}: its process ended" for name in broken)


def line(trial: Trial, seeds: int) -> list[object]:
    """Return an architecture's row; what is judged, and what follows, counts all seeds."""
    directions: Counter[str] = Counter()
    for (direction, _), count in trial.outcomes.items():
        directions[direction] += count
    skipped = trial.skips.total()
    return [
        trial.name,
        ARCHITECTURES[trial.name].title,
        f"{directions['forward'] // seeds} + {directions['backward'] // seeds}",
        trial.outcomes.total() - skipped,
        sum(map(len, trial.alarms.values())),
        skipped,
        "no" if trial.differences else "yes",
        f"{trial.plain * 1e3:.0f}, {trial.recorded * 1e3:.0f} ({trial.recorded / trial.plain:.1f})",
    ]


if __name__ == "__main__":
    main()
