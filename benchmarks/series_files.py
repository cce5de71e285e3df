"""What the files of a watched run cost: bytes, writing a step, reading every series in the order of keys.

Values are random at five statistics, all of a double's mantissa used. Writing and reading are processes of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import quote, run, scratch, table

STATISTICS = ("norm", "min", "max", "mean", "zeros")
STEPS_PER_FILE = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--tensors", type=int, default=2_000, help="default: %(default)s")
    parser.add_argument("--format", default="parquet", help="csv or parquet, the default")
    parser.add_argument("--only", choices=("write", "read"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()

    if options.only == "write":
        write(options.folder, options.format, options.steps, options.tensors)
    elif options.only == "read":
        read(options.folder)
    else:
        measure(options.format, options.steps, options.tensors)


def measure(kind: str, steps: int, tensors: int) -> None:
    with TemporaryDirectory(dir=scratch()) as folder:
        words = [sys.executable, __file__, f"--folder={folder}", f"--format={kind}", f"--steps={steps}"]
        writing = run([*words, f"--tensors={tensors}", "--only=write"])
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        reading = run([*words, "--only=read"])
    rows = [
        [
            kind,
            f"{steps} x {tensors}",
            f"{size / steps / tensors:.1f}",
            writing.output.strip(),
            f"{writing.peak:.0f}",
            f"{reading.wall:.1f}",
            f"{reading.cpu:.1f}",
            f"{reading.peak:.0f}",
        ]
    ]
    run_of = f"{kind}, {steps} x {tensors}"
    wanted = "at most 40" if kind == "parquet" else ""
    quote(f"{run_of}: of a tensor and step", size / steps / tensors, unit="bytes", wanted=wanted)
    quote(f"{run_of}: reading all series", reading.cpu, unit="CPU s")
    head = ["format", "steps x tensors", "bytes per tensor and step", "write ms per step", "peak MiB"]
    print(table([*head, "read all s", "CPU s", "peak MiB"], rows))


def write(folder: Path, kind: str, steps: int, tensors: int) -> None:
    """Write a run, and print how many milliseconds of CPU time the writer took per step."""
    import numpy as np

    from msprobe_hooks.instruments.series.writer import Row, open_writer

    rng = np.random.default_rng(0)
    scales = 10 ** rng.uniform(-4, 2, (tensors, 1))
    names = [f"module.layers.{i // 8}.mlp.dense_{i % 8}.input" for i in range(tensors)]
    writer = open_writer(kind, folder, STATISTICS, ndigits=6, steps_per_file=STEPS_PER_FILE)
    seconds = 0.0
    for step in range(steps):
        drawn = (np.exp(rng.normal(size=(tensors, len(STATISTICS)))) * scales).tolist()
        rows = [Row("actv", 0, name, step, 0, tuple(values)) for name, values in zip(names, drawn, strict=True)]
        start = time.process_time()
        writer.add(rows)
        seconds += time.process_time() - start
    start = time.process_time()
    writer.close()
    print(f"{(seconds + time.process_time() - start) / steps * 1e3:.2f}")


def read(folder: Path) -> None:
    from msprobe_hooks.instruments.series.reader import open_run

    run = open_run(folder)
    for key in run.keys:
        run.read(key)


if __name__ == "__main__":
    main()
