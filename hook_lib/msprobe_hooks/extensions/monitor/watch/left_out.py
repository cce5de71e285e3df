"""What is not monitored although it could be, or was requested: one line for each reason, with names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.selection import SIDES, WHATS, Target, unknown_targets
from msprobe_hooks.messages import did_you_mean, listed


def notes_on_ranks(plan: Plan, rank: int | None) -> Iterator[str]:
    """Yield a line where the only process of a program is not among the ranks that are watched."""
    if rank is None and plan.what and not plan.is_for(rank):
        ranks = listed(map(str, sorted(plan.ranks)))
        yield f"nothing is monitored: this process, not distributed, has rank 0, and the ranks to monitor are {ranks}"


def notes_on_targets(plan: Plan, targets: Sequence[Target], names: Iterable[Iterable[Sequence[str]]]) -> Iterator[str]:
    """Yield a line on targets that are nothing in the model, and one on their sides that the plan does not watch.

    ``names`` are, for each chunk, lists of what is in it.
    """
    chunks = [list(lists) for lists in names]
    if unknown := unknown_targets(plan, chunks):
        which = "not a module or parameter" if len(unknown) == 1 else "not modules or parameters"
        hint = did_you_mean(unknown[0], (name for lists in chunks for full in lists for name in full))
        yield f"targets: {which} of the model: {listed(map(repr, unknown))}{hint}"
    elif not plan.has_all_modules and not targets:
        whats = [what for what in WHATS if plan.wants(what)]
        if whats:
            yield f"targets names parameters only: {' and '.join(whats)} are not monitored"
    missing: dict[str, list[str]] = {}
    for target in targets:
        for field in target.asked:
            if field not in target.fields:
                missing.setdefault(field, []).append(target.name)
    fields = [field for field in SIDES if field in missing]
    if fields:
        unwanted = dict.fromkeys(SIDES[field].what for field in fields)
        of = dict.fromkeys(name for field in fields for name in missing[field])
        yield (
            f"targets requests {', '.join(fields)} of {listed(map(repr, of))}, "
            f"but {' and '.join(unwanted)} are not monitored"
        )
