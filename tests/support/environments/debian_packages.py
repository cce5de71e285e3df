"""Debian's packages unpacked into a folder: for another processor, or those of a newer Debian."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIBRARIES = """libc6 libgcc-s1 libstdc++6 zlib1g libffi8 libexpat1 libsqlite3-0 libbz2-1.0 liblzma5 libtinfo6
    libncursesw6 libuuid1 libgomp1 libcrypt1""".split()


def python_packages(version: str) -> list[str]:
    """Return the packages of a Python without what one installs it with."""
    parts = (
        f"python{version}",
        f"python{version}-minimal",
        f"libpython{version}-minimal",
        f"libpython{version}-stdlib",
    )
    return [*parts, *_LIBRARIES]


def unpack_packages(folder: Path, packages: list[str], architecture: str, release: str = "") -> None:
    """Unpack packages into ``folder/root``; the lists of packages of this machine stay as they are.

    ``release`` is the name of a release of Debian other than this machine's.
    """
    downloads = folder / "packages"
    for part in ("lists/partial", "cache/archives/partial"):
        (downloads / part).mkdir(parents=True, exist_ok=True)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State::lists": downloads / "lists",
        "Dir::Cache": downloads / "cache",
        # Root's folders are closed to apt's own user.
        "APT::Sandbox::User": "root",
    }
    if release:
        (downloads / "sources.list").write_text(f"deb [signed-by={KEYS}] {_archive()} {release} main\n")
        settings |= {"Dir::Etc::sourcelist": downloads / "sources.list", "Dir::Etc::sourceparts": "-"}
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    run(*apt, "update", cwd=downloads)
    run(*apt, "download", *packages, cwd=downloads)
    for package in sorted(downloads.glob("*.deb")):
        run("dpkg", "-x", package.name, str(folder / "root"), cwd=downloads)


def _archive() -> str:
    """Return where this machine's apt has Debian's packages from."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    # Security updates lie in an archive of their own, which has no release that is still in the making.
    return next(one for one in listed if "security" not in one)


def run(*words: str, cwd: Path = ROOT) -> None:
    """Run a program, which finds none of this environment's modules: pip would build with them."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, cwd=cwd, env=environment, check=True)
