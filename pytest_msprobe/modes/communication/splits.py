"""Whether the parts that ranks exchange in one tensor (``all_to_all_single``) have the sizes that both sides expect."""

from __future__ import annotations

from collections.abc import Mapping

from msprobe_hooks.dump.communication.collectives import Communicated, read_communicated
from msprobe_hooks.dump.communication.exchanges import Exchange
from msprobe_hooks.dump.schema import Element, TensorElement, ValueElement
from pytest_msprobe.modes.communication.steps import StepCommunication
from pytest_msprobe.modes.communication.structure import Finding

_OPERATION = "all_to_all_single"


def split_finding(exchange: Exchange, step: StepCommunication) -> Finding | None:
    """Return the first part that is given in another size than it is taken in, by rows; None where all fit.

    Raises RecordError where a record is malformed.
    """
    if any(end.operation != _OPERATION or not call.is_recorded for call, end in exchange.members):
        return None
    said = {call.rank: read_communicated(step.dump(call).forward(call.name)) for call, _ in exchange.members}
    ranks = sorted(exchange.expected or said)
    given = _sizes(said, "input", len(ranks))
    taken = _sizes(said, "output", len(ranks))
    for here, source in enumerate(ranks):
        for there, target in enumerate(ranks):
            gives, takes = given.get(source, {}).get(there), taken.get(target, {}).get(here)
            if gives is not None and takes is not None and gives != takes:
                words = f"rank {source} gives {gives} rows to rank {target}, which takes {takes}"
                return Finding(f"split sizes differ: {words}")
    return None


def _sizes(said: Mapping[int, Communicated], side: str, count: int) -> dict[int, dict[int, int]]:
    """Return by rank how many rows it gives to, or takes from, each rank of the group, by place."""
    found = {}
    for rank, each in said.items():
        recorded = each.before.get(f"{side}_split_sizes")
        sizes = _listed(recorded) if recorded else _even(each.either.get(side), count)
        if len(sizes) == count:
            found[rank] = dict(enumerate(sizes))
    return found


def _listed(element: Element) -> list[int]:
    values = [each.value for each in element if isinstance(each, ValueElement)] if isinstance(element, list) else []
    return [value for value in values if type(value) is int]


def _even(element: Element, count: int) -> list[int]:
    """Return the sizes of a tensor that is split evenly, which it is where no sizes are given."""
    if not isinstance(element, TensorElement) or not element.shape:
        return []
    return [element.shape[0] // count] * count
