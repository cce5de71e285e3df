"""``pytest-msprobe msprobe precision-compare``: judge a finished run by another."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_msprobe.errors import CommandError
from pytest_msprobe.reports.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    file = "a file of --msprobe-save-baseline, a journal with numbers, or an accuracy_checking_details table"
    parser.add_argument("target", metavar="NPU", type=Path, help=f"run to judge: {file}")
    parser.add_argument("baseline", metavar="GPU", type=Path, help="run to judge it by: any of these")
    parser.add_argument(
        "--policy",
        metavar="NAME|FILE",
        help="policy that judges: default, msprobe-1.2, msprobe-26 or a YAML file (default: that of both runs)",
    )
    parser.add_argument(
        "--level", choices=("L0", "L1", "L2"), help="strictness of the policy msprobe-26 (default: that of both runs)"
    )
    parser.add_argument(
        "--csv", metavar="DIR", type=Path, help="write msprobe's two api_precision_compare tables to this folder"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what is wrong and a summary. Return 1 if something is, else 0.

    Raises CommandError if nothing was judged, which is not a success.
    """
    from pytest_msprobe.extensions.msprobe_commands.comparison import read_run, require_comparable

    try:
        target, baseline = read_run(arguments.target), read_run(arguments.baseline)
        require_comparable(target, baseline)

        from msprobe_standards import Policy
        from pytest_msprobe.extensions.msprobe_commands.comparison import (
            compare_runs,
            level_of,
            policy_of,
            report_lines,
        )

        name, level = arguments.policy, arguments.level
        if name is None:
            name, level = policy_of(target, baseline), level or level_of(target, baseline)
        policy = Policy.load(name, level=level)
        records = list(compare_runs(target, baseline, policy))
        lines = report_lines(target, baseline, policy, records)
        if arguments.csv is not None:
            from pytest_msprobe.extensions.msprobe_commands.comparison_tables import write_tables

            result, details = write_tables(arguments.csv, records)
            lines.append(f"msprobe tables: {result} and {details.name}")
    except (ValueError, FileNotFoundError) as error:
        raise CommandError(str(error)) from None
    print(printable("\n".join(lines)))
    outcomes = {record.result.verdict.outcome for record in records}
    if outcomes == {"skip"}:
        raise CommandError(f"none of the {len(records)} records was judged; see the summary for the reasons")
    return int("fail" in outcomes)
