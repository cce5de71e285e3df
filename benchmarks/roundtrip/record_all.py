"""Record every model with both tools in both of the peer's environments, each recording in a process of its own.

    python benchmarks/roundtrip/record_all.py [--family lstm ...]

Results lie in ``.bench/roundtrip/{version}/{tool}/{family}/{level}-{task}``; what is there is not made again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from tests.corpus.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".bench" / "roundtrip"

# The peer's environments; the recording library runs in them from this source tree, so that torch is the same one.
ENVIRONMENTS = {"1.2.2": ROOT / ".peer", "26.2.0": ROOT / ".peer26"}

RECORDINGS = (
    ("L1", "statistics"),
    ("mix", "statistics"),
    ("L0", "statistics"),
    ("L1", "md5"),
    ("L1", "tensor"),
)
TOOLS = ("msprobe", "msprobe_hooks")


def environment(version: str) -> Path:
    """Return the python of the peer's environment. Raises SystemExit saying how to make one."""
    python = ENVIRONMENTS[version] / "bin" / "python"
    if not python.exists():
        raise SystemExit(
            f"{ENVIRONMENTS[version].name} is missing: the peer needs an environment of its own; make it with\n"
            f"  python3.11 -m venv {ENVIRONMENTS[version].name} && {ENVIRONMENTS[version].name}/bin/pip install"
            f" torch==2.13.0 mindstudio-probe=={version} transformers msgspec service_identity"
        )
    return python


def record(version: str, tool: str, family: str, level: str, task: str) -> Path:
    """Return the folder of a recording, made where it is missing. Raises SystemExit with what went wrong."""
    folder = RESULTS / version / tool / family / f"{level}-{task}"
    if not (folder / "step.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [environment(version), Path(__file__).with_name("record_step.py"), tool, family, level, task, folder],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "hook_lib"), str(ROOT)])},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{folder}: recording failed\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return folder


def main() -> None:
    """Make all recordings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", nargs="*", default=list(FAMILIES))
    for family in parser.parse_args().family:
        for version in ENVIRONMENTS:
            record(version, "nothing", family, "L1", "statistics")
            for level, task in RECORDINGS:
                for tool in TOOLS:
                    print(record(version, tool, family, level, task).relative_to(RESULTS), flush=True)


if __name__ == "__main__":
    main()
