"""``pytest-msprobe environment``: variables, packages, launch scripts and YAML files, without a training."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe_hooks.extensions.environment.environment import pack
from pytest_msprobe.reports.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="launch scripts (.sh) and YAML files of the training to include"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for rank<n>.json, where n is the variable RANK, or 0",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file and return 0. Raises ConfigError or StartError for what cannot be read or written."""
    print(printable(str(pack(arguments.output, arguments.files))))
    return 0
