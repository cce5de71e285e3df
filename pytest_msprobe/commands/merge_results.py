"""``pytest-msprobe msprobe merge-results``: the comparison tables of many ranks in one workbook."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from pytest_msprobe.errors import CommandError
from pytest_msprobe.modes.compare.reports.merged_workbook import find_tables, merge, read_configuration, write_merged
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.storage.atomic_write import atomic_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; their names are msprobe's."""
    parser.add_argument(
        "-i", "--input-dir", "--input_dir", type=Path, required=True, metavar="DIR", help="folder of the tables"
    )
    parser.add_argument(
        "-o", "--output-dir", "--output_dir", type=Path, required=True, metavar="DIR", help="folder for the workbook"
    )
    parser.add_argument(
        "-config",
        "--config-path",
        type=Path,
        required=True,
        metavar="YAML",
        help="YAML file with the api and compare_index to merge",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, print a summary, and return 0."""
    configuration = read_configuration(arguments.config_path)
    merged = merge(find_tables(arguments.input_dir), configuration)
    path = arguments.output_dir / f"multi_ranks_compare_merge_{datetime.now():%Y%m%d%H%M%S}.xlsx"
    try:
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write_merged(part, merged)
    except ImportError:
        raise CommandError("workbooks need XlsxWriter", remedy="pip install 'pytest-msprobe[xlsx]'") from None
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror or error}", file=path) from None
    for api in merged.unused:
        print(one_line(f"not in any table: {api}"))
    values = max((len(rows) for rows in merged.sheets.values()), default=0)
    print(f"{values} values of {len(merged.ranks)} ranks, {len(merged.sheets)} metrics: {path}")
    return 0
