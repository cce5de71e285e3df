"""How many instructions a checked item, a recorded call and a compared call take, against the numbers that are kept.

    python benchmarks/instructions.py            # exit status 1: one takes more than 1.3 times what it took
    python benchmarks/instructions.py --keep     # keep what is measured as the numbers of this torch

Callgrind runs each instruction of the process on a processor of its own making, so that neither the load nor the model
of the real one matters: torch's, oneDNN's and MKL's kernels are chosen by what callgrind says. Needs valgrind and a C
compiler.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import tomllib
from counted_work import WORK
from measure import ROOT, quote, scratch, table

KEPT = ROOT / "benchmarks" / "instructions.toml"
LIMIT = 1.3
_HEAD = """\
# Instructions of one item each, by torch version. `make keep-instructions` writes those of the torch that it runs.
"""


def counted() -> dict[str, int]:
    """Return the instructions of one item of each kind of work.

    Raises SystemExit where valgrind or a compiler is missing, or the counted program fails.
    """
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None or shutil.which("valgrind") is None:
        raise SystemExit("counting instructions needs valgrind and a C compiler: apt-get install valgrind g++")
    with TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        client = folder / "callgrind.so"
        source = ROOT / "benchmarks" / "callgrind.c"
        subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-O1", "-o", client, source], check=True)
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'counts'}"]
        done = subprocess.run(
            [*valgrind, sys.executable, ROOT / "benchmarks" / "counted_work.py", client, folder],
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"what is counted did not run:\n{done.stdout[-4000:]}")
        totals = dict(total(path.read_text()) for path in folder.glob("counts.*"))
    return {
        name: round((totals[f"{name}, {many}"] - totals[f"{name}, {one}"]) / (many - one))
        for name, (_, one, many) in WORK.items()
    }


def total(text: str) -> tuple[str, int]:
    """Return the name that the program gave to a count, and the instructions, of one file of callgrind."""
    name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
    instructions = re.search(r"^summary: (\d+)$", text, re.MULTILINE)
    if name is None or instructions is None:
        return "", 0
    return name[1], int(instructions[1])


def keep(kept: Mapping[str, Mapping[str, int]]) -> None:
    """Write the numbers of every torch version."""
    lines = [_HEAD]
    for torch, numbers in sorted(kept.items()):
        lines += [f'["{torch}"]', *(f'"{name}" = {number}' for name, number in numbers.items()), ""]
    KEPT.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="write what is measured into instructions.toml")
    options = parser.parse_args()

    torch = version("torch").partition("+")[0]
    kept = tomllib.loads(KEPT.read_text()) if KEPT.exists() else {}
    numbers = counted()
    if options.keep:
        keep({**kept, torch: numbers})
        kept = tomllib.loads(KEPT.read_text())
    before = kept.get(torch, {})
    rows, slower = [], []
    for name, number in numbers.items():
        ratio = number / before[name] if name in before else None
        rows.append([name, number, before.get(name, "-"), "-" if ratio is None else f"{ratio:.3f}"])
        if ratio is not None:
            quote(f"instructions of a {name}, over those kept", ratio, wanted=f"at most {LIMIT}")
            if ratio > LIMIT:
                slower.append(f"a {name} takes {number} instructions, {before[name]} are kept: {ratio:.2f} times")
    print(f"torch {torch}, Python {platform.python_version()}\n")
    print(table(["one", "instructions", "kept", "ratio"], rows))
    if slower:
        remedy = f"At most {LIMIT} times is allowed. Where it has to cost more, `make keep-instructions` renews {KEPT}."
        raise SystemExit("\n".join([*slower, remedy]))
    if missing := numbers.keys() - before.keys():
        text = f"{KEPT.name} has no number for torch {torch} of a {', '.join(sorted(missing))}"
        print(f"{text}; `make keep-instructions` writes them.")
        if f"torch=={torch}" in (ROOT / "constraints.txt").read_text().splitlines():
            raise SystemExit(f"{ROOT / 'constraints.txt'} asks for torch {torch}, so that its numbers have to be kept.")


if __name__ == "__main__":
    main()
