"""A Python of ARM servers on another processor: Debian's packages for arm64 under QEMU, and wheels of torch for it.

``python -m tests.support.arm_environment FOLDER [TORCH]`` makes it in a folder, with ``FOLDER/python`` to start it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EMULATOR = "qemu-aarch64-static"
#: A server's ARMv8.2 processor without bfloat16 and SVE, as Kunpeng 920 is.
PROCESSOR = "neoverse-n1"
PYTHON = "3.11"
PACKAGES = f"""python{PYTHON} python{PYTHON}-minimal libpython{PYTHON}-minimal libpython{PYTHON}-stdlib libc6 libgcc-s1
    libstdc++6 zlib1g libssl3 libffi8 libexpat1 libsqlite3-0 libbz2-1.0 liblzma5 libreadline8 libtinfo6 libncursesw6
    libuuid1 libgomp1 libcrypt1 libnsl2 libtirpc3 libdb5.3""".split()
#: PyPI's wheels for ARM are builds for CPUs up to torch 2.9; pip would still ask for CUDA's packages of some.
TORCH = "2.7.1"
# Torch older than 2.4 was built for NumPy 1.
OLD_NUMPY = ("2.2.", "2.3.")
WHEELS = """msgspec pyyaml pytest pytest-xdist hypothesis mpmath safetensors junitparser
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
    install_python(folder)
    install_wheels(folder / "site", sys.argv[2] if len(sys.argv) > 2 else TORCH)
    start = START.format(root=folder / "root", emulator=emulator, processor=PROCESSOR, python=PYTHON)
    (folder / "python").write_text(start)
    (folder / "python").chmod(0o755)


def install_python(folder: Path) -> None:
    """Unpack Debian's packages; the lists of packages of this machine stay as they are."""
    packages = folder / "packages"
    for part in ("lists/partial", "cache/archives/partial"):
        (packages / part).mkdir(parents=True, exist_ok=True)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State::lists": packages / "lists",
        "Dir::Cache": packages / "cache",
        # Root's folders are closed to apt's own user.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    run(*apt, "update", cwd=packages)
    run(*apt, "download", *PACKAGES, cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        run("dpkg", "-x", package.name, str(folder / "root"), cwd=packages)


def install_wheels(site: Path, torch: str) -> None:
    """Install this version of torch, what it and tests need, and this package, all of which run as they are."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", f"--target={site}"]
    foreign = [f"--python-version={PYTHON}", "--only-binary=:all:", *(f"--platform={name}" for name in PLATFORMS)]
    run(*pip, *foreign, "--no-deps", f"torch=={torch}")
    run(*pip, *foreign, "numpy<2" if torch.startswith(OLD_NUMPY) else "numpy", *WHEELS)
    run(*pip, "--no-deps", str(ROOT))


def run(*words: str, cwd: Path = ROOT) -> None:
    # The paths of this environment would be those of pip's builds.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, cwd=cwd, env=environment, check=True)


if __name__ == "__main__":
    main()
