"""``pytest-msprobe msprobe stand-in``: a package named msprobe of two lines, which call `stand_in.install`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_msprobe.errors import CommandError

_SOURCE = f"""\
\"\"\"Programs written for msprobe use the recorder of pytest-msprobe by this package.\"\"\"
from {__name__.rpartition(".")[0]}.stand_in import install; install(__name__)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to write the package into, for PYTHONPATH")


def run(arguments: argparse.Namespace) -> int:
    """Write the package, and print how a program gets it. Raises CommandError where another file is in its place."""
    folder: Path = arguments.folder
    path = folder / "msprobe" / "__init__.py"
    try:
        if path.exists() and path.read_text(encoding="utf-8") != _SOURCE:
            raise CommandError("is another file already", file=path, remedy="choose another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_SOURCE, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot be written: {error}", file=path) from None
    print(f"{path.parent} is imported as msprobe where this folder comes first: PYTHONPATH={folder.resolve()}")
    return 0
