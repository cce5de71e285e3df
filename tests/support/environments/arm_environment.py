"""A Python of ARM servers on another processor: Debian's packages for arm64 under QEMU, and wheels of torch for it.

``python -m tests.support.environments.arm_environment FOLDER [TORCH]`` makes it in a folder; ``FOLDER/python`` starts
it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.environments.debian_packages import ROOT, python_packages, run, unpack_packages

EMULATOR = "qemu-aarch64-static"
#: A server's ARMv8.2 processor without bfloat16 and SVE, as Kunpeng 920 is.
PROCESSOR = "neoverse-n1"
PYTHON = "3.11"
LIBRARIES = ["libssl3", "libreadline8", "libdb5.3", "libnsl2", "libtirpc3"]
#: PyPI's wheels for ARM are builds for CPUs up to torch 2.9; pip would still ask for CUDA's packages of some.
TORCH = "2.7.1"
# Torch older than 2.4 was built for NumPy 1.
OLD_NUMPY = ("2.2.", "2.3.")
WHEELS = """msgspec pyyaml pytest pytest-xdist hypothesis mpmath safetensors junitparser zstandard isal
    filelock typing-extensions networkx jinja2 fsspec sympy""".split()
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
START = """#!/bin/sh
exec env PYTHONHOME={root}/usr {emulator} -cpu {processor} -L {root} -0 "$0" {root}/usr/bin/python{python} "$@"
"""


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        sys.exit(f"{EMULATOR} is not installed; apt-get install qemu-user-static")
    unpack_packages(folder, [*python_packages(PYTHON), *LIBRARIES], "arm64")
    install_wheels(folder / "site", sys.argv[2] if len(sys.argv) > 2 else TORCH)
    start = START.format(root=folder / "root", emulator=emulator, processor=PROCESSOR, python=PYTHON)
    (folder / "python").write_text(start)
    (folder / "python").chmod(0o755)


def install_wheels(site: Path, torch: str) -> None:
    """Install this version of torch, what it and tests need, and this package, all of which run as they are."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", f"--target={site}"]
    foreign = [f"--python-version={PYTHON}", "--only-binary=:all:", *(f"--platform={name}" for name in PLATFORMS)]
    run(*pip, *foreign, "--no-deps", f"torch=={torch}")
    run(*pip, *foreign, "numpy<2" if torch.startswith(OLD_NUMPY) else "numpy", *WHEELS)
    run(*pip, "--no-deps", str(ROOT))


if __name__ == "__main__":
    main()
