"""Which policy, at which level, judges two finished runs where the user names none: what both were made under."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import cast

from msprobe_hooks.dump.names import parse_api_name
from msprobe_standards import Policy, built_in_policies
from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.comparison import standard_for
from pytest_msprobe.modes.check.baselines.finished_runs import Run
from pytest_msprobe.modes.check.baselines.metrics import recorded_output
from pytest_msprobe.run.options import BY_API, Level

# A table does not name its policy; only these read nothing but what is in its columns.
_OF_TABLES = ("msprobe-1.2", "msprobe-26")


def policy_of(target: Run, baseline: Run) -> str:
    """Return the name of the built-in policy that both runs were made under.

    Raises BaselineError where they do not name it, or name different ones.
    """
    of_target, of_baseline = _policies(target), _policies(baseline)
    both = [name for name in of_target if name in of_baseline]
    if not both:
        raise BaselineError(
            f"was made under the policy {' or '.join(of_baseline)}, {target.path} under {' or '.join(of_target)}",
            file=baseline.path,
            remedy="pass --policy",
        )
    if len(both) > 1:
        raise BaselineError(
            f"fits both policies {' and '.join(both)}", file=target.path, remedy="pass --policy with one of them"
        )
    if both[0] not in built_in_policies():
        raise BaselineError("was made under a policy of your own", file=target.path, remedy="pass its file as --policy")
    return both[0]


def level_of(target: Run, baseline: Run) -> Level | None:
    """Return the policy's level that both runs were made at, None where each API had its own.

    Raises BaselineError where they name different ones.
    """
    if target.level and baseline.level and target.level != baseline.level:
        raise BaselineError(
            f"was made at the level {baseline.level}, {target.path} at {target.level}",
            file=baseline.path,
            remedy="pass --policy, and --level for one level of all",
        )
    level = target.level or baseline.level
    return None if level in ("", BY_API) else cast("Level", level)


def _policies(run: Run) -> Collection[str]:
    """Return what a run was made under; of a table all that find as many of their numbers in it."""
    if not run.is_table:
        return (run.policy,)
    lacking = {name: _lacking(run, Policy.load(name)) for name in _OF_TABLES}
    return [name for name, count in lacking.items() if count == min(lacking.values())]


def _lacking(run: Run, policy: Policy) -> int:
    """Count the outputs of which a run has numbers, but not those that the policy reads."""
    lacking = 0
    for row in run.rows:
        with suppress(ValueError):  # the name of no API, which is not judged
            name = parse_api_name(row.record)
            for output in row.outputs:
                recorded = recorded_output(output)
                if recorded is not None:
                    lacking += recorded.metrics_for(standard_for(name, row, output, policy)) is None
    return lacking
