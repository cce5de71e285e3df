"""Run every benchmark, and end with one table of the numbers that are quoted.

    python benchmarks/run_all.py [--quick] [--only recording.py ...] [--dumps FOLDER]

What needs a part that is not here (msprobe's environments, sshd) is named with that part and not run.
``--quick`` runs small sizes once, to see that all of them work; its numbers mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import PEER_PYTHON, QUOTES, ROOT, scratch, table

FOLDER = ROOT / "benchmarks"
MINDSPORE = ".venv-mindspore"


@dataclass(frozen=True)
class Part:
    """What some benchmarks need in addition to this project's environment."""

    name: str
    is_here: Callable[[], bool]


def environment(folder: str, holds: str) -> Part:
    """Return the part that is a Python environment in this project's folder."""
    return Part(f"{holds} in {folder}", (ROOT / folder / "bin" / "python").exists)


def command(name: str) -> Part:
    """Return the part that is a program."""
    return Part(name, lambda: shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None)


PEER = Part("msprobe 1.2.2 in .peer", PEER_PYTHON.exists)
PEER26 = environment(".peer26", "msprobe 26.2.0")
PEER26_MINDSPORE = environment(".peer26-mindspore", "msprobe 26.2.0 with MindSpore")
WITH_MINDSPORE = environment(MINDSPORE, "MindSpore")
TORCH_NPU = Part("torch_npu in .venv-npu", (ROOT / ".venv-npu" / "installed").exists)
MODELS = environment(".venv-models", "the libraries of models")


@dataclass(frozen=True)
class Benchmark:
    """A script and where its numbers are quoted.

    ``page`` is a file of ``docs/``; ``quick`` the options for a small size; ``environment`` the folder of its Python,
    where that is not this one; ``left_out`` why it is not run here.
    """

    title: str
    page: str
    words: str
    quick: str = ""
    needs: tuple[Part, ...] = ()
    environment: str = ""
    left_out: str = ""

    def missing(self) -> str:
        """Tell why it cannot be run; empty where it can."""
        parts = [part.name for part in self.needs if not part.is_here()]
        return self.left_out or (f"needs {' and '.join(parts)}" if parts else "")

    def command(self, *, is_quick: bool) -> list[str]:
        """Return how its script is run."""
        python = str(ROOT / self.environment / "bin" / "python") if self.environment else sys.executable
        script, *options = shlex.split(f"{self.words} {self.quick if is_quick else ''}")
        return [python, str(FOLDER / script), *options]


PERFORMANCE = "performance.md"
BENCHMARKS = (
    Benchmark("Checking small records", PERFORMANCE, "check_vs_peer.py", "--rounds 1 --sample 5", (PEER,)),
    Benchmark("A simulated card", PERFORMANCE, "npu_vs_peer.py", "--calls 1", (PEER, PEER26, TORCH_NPU)),
    Benchmark("200 000 records", PERFORMANCE, "read_and_collect.py", "--rounds 1 --records 4000"),
    Benchmark("Two workers", PERFORMANCE, "workers.py", "--rounds 1", (PEER,)),
    Benchmark(
        "A decoder layer",
        PERFORMANCE,
        "decoder_layer.py",
        "--tokens 128 --hidden 512 --vocabulary 2000",
    ),
    Benchmark("Journals", PERFORMANCE, "journal.py", "--records 1000"),
    Benchmark("A healthy CPU", PERFORMANCE, "real_dumps.py", "--seeds 0"),
    Benchmark("Comparing two runs", PERFORMANCE, "compare_vs_peer.py", "--rounds 1"),
    Benchmark("1 024 ranks", "many-machines.md", "cluster.py", "--ranks 8 --records 300 --shards 4"),
    Benchmark("Graphs of two runs", PERFORMANCE, "graph_vs_peer.py", "--rounds 1 --nodes 400 --large 2000"),
    Benchmark("Recording", PERFORMANCE, "recording.py", "--repeat 1"),
    Benchmark("Recording, and msprobe", PERFORMANCE, "recording_vs_peer.py", "--rounds 1 --steps 2", (PEER, PEER26)),
    Benchmark("Watching a training", PERFORMANCE, "watching.py", "--pairs 4 --only gpt2"),
    Benchmark("What a card is asked for", PERFORMANCE, "launches.py", needs=(command("c++"), command("ninja"))),
    Benchmark(
        "Growth",
        PERFORMANCE,
        "growth.py",
        "--records 40 80 160 --ranks 2 4 20 --steps 20 40 80",
    ),
    Benchmark("Live checks", PERFORMANCE, "live.py", "--repeat 1 --steps 3"),
    Benchmark("MindSpore", PERFORMANCE, "mindspore_vs_peer.py", "--rounds 1 --times 1", (PEER26_MINDSPORE,), MINDSPORE),
    Benchmark(
        "Recording MindSpore",
        PERFORMANCE,
        "mindspore_recording_vs_peer.py",
        "--rounds 1 --steps 3",
        (PEER26_MINDSPORE,),
    ),
    Benchmark("Communication", "communication.md", "communication.py", "--ranks 4 --records 100"),
    Benchmark("Weight sync", "environment.md", "weight_sync.py", "--layers 1"),
    Benchmark("A remote device", "baselines.md", "remote.py", "--rounds 2 --bytes 4096", (command("sshd"),)),
    Benchmark("Many workers", "many-machines.md", "scaling.py", "--workers 1 2 --records 50 --seconds 0.05"),
    Benchmark("Faults and correct devices", "verdict-quality.md", "verdict_quality.py", "--per-api 1"),
    Benchmark("Other tools", "verdict-quality.md", "tools", "--every 200"),
    Benchmark("Rare faults", "verdict-quality.md", "rare_faults.py", "--seeds 1 --dtypes bfloat16"),
    Benchmark("Healthy cases", "verdict-quality.md", "healthy_cases.py", "--per-api 1"),
    Benchmark(
        "Small faults of engines in bfloat16",
        "train-and-inference.md",
        "inference_precision.py",
        "--kinds dense --layers 2 --faults healthy epsilon",
    ),
    Benchmark("Healthy random numbers", "verdict-quality.md", "random_draws.py", "--draws 100"),
    Benchmark("Crashes and hangs", "containment.md", "chaos.py", "--items 60 --faults 6 --kills 1"),
    Benchmark("Faults of MindSpore", "verdict-quality.md", "mindspore_faults.py", "", (WITH_MINDSPORE,), MINDSPORE),
    Benchmark(
        "Accuracy of MindSpore's CPU kernels",
        "standards-reference.md",
        "mindspore_cpu_accuracy.py",
        left_out="writes rules of a policy, which is for who means to change them",
    ),
    Benchmark("Real architectures", "versions.md", "models.py", "--only swin --seeds 0", (MODELS,), ".venv-models"),
    Benchmark("Dumps of both recorders", "versions.md", "roundtrip/differences.py", "--family lstm", (PEER, PEER26)),
    Benchmark(
        "Each other's dumps",
        "versions.md",
        "roundtrip/peer_tools.py",
        "--family lstm --version 1.2.2",
        (PEER, PEER26),
    ),
    Benchmark(
        "Pages",
        "../benchmarks/README.md",
        "pages.py",
        "--rounds 1 --records 200 --rows 300 --nodes 400 --series 20",
        (command("chromium"), command("chromedriver")),
    ),
    Benchmark("An idle start", "../benchmarks/RESULTS.md", "idle_start.py", "--rounds 2"),
    Benchmark("Instructions of an item", "../benchmarks/README.md", "instructions.py", needs=(command("valgrind"),)),
)


def main() -> None:
    scripts = {each.words.split()[0] for each in BENCHMARKS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, once: whether everything works")
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", choices=sorted(scripts), default=sorted(scripts))
    parser.add_argument("--dumps", type=Path, help="a folder of recorded dumps, for real_dumps.py")
    options = parser.parse_args()

    machine = f"{os.cpu_count()} x {processor()}"
    print(f"{machine}, Python {platform.python_version()}\n")
    rows, failed = [], []
    for benchmark in (each for each in BENCHMARKS if each.words.split()[0] in options.only):
        print(f"## {benchmark.title}\n", flush=True)
        words = benchmark.command(is_quick=options.quick)
        missing = benchmark.missing()
        if Path(words[1]).name == "real_dumps.py":
            missing = "" if options.dumps else "needs recorded dumps, from --dumps"
            words.insert(2, str(options.dumps))
        if missing:
            print(f"not run: {missing}\n", flush=True)
            rows.append(
                [benchmark.title, benchmark.page, f"`{Path(words[1]).name}`", "", f"not run: {missing}", "", ""]
            )
            continue
        print(f"`python {shlex.join([str(Path(words[1]).relative_to(ROOT)), *words[2:]])}`\n", flush=True)
        with TemporaryDirectory(dir=scratch()) as folder:
            quotes = Path(folder, "quotes.jsonl")
            if subprocess.run(words, env={**os.environ, QUOTES: str(quotes)}, check=False).returncode:
                failed.append(benchmark.words.split()[0])
            for line in quoted(quotes):
                where = f"{machine}, load {line['load']:.1f}"
                number = f"{line['measured']:.4g}"
                rows.append(
                    [benchmark.title, benchmark.page, line["what"], line["wanted"], number, line["unit"], where]
                )
    print("## What the documents quote\n")
    print(table(["benchmark", "page", "what", "wanted", "measured", "unit", "machine"], rows))
    if failed:
        raise SystemExit(f"ended with an error: {', '.join(failed)}")


def quoted(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what a benchmark has handed over by ``measure.quote``."""
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def processor() -> str:
    """Return the processor's name, where the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
