"""Why a dump holds less communication than a training made: which libraries make it where no recorder sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from msprobe_hooks.extensions.merged_ranks.placements import MARK
from pytest_msprobe.extensions.communication.steps import StepCommunication

_SHOWN_RECORDS = 10_000
# DistributedDataParallel keeps the model in this attribute, and FSDP puts its name before that of a module's class.
_WRAPPED = "Module.module."
_FSDP = re.compile(r"\.FSDP\w*\.(forward|backward)")


def unrecorded_lines(steps: Sequence[StepCommunication]) -> Iterator[str]:
    """Yield why the communication of a library is not among the calls, a line for each; none where all seems to be."""
    has_calls = any(step.exchanges for step in steps)
    names = list(islice(_names(steps), _SHOWN_RECORDS))
    if any(name.startswith(_WRAPPED) for name in names):
        yield (
            "not recorded: the reductions of DistributedDataParallel, which are made in C++ (the model is wrapped, "
            "Module.module); register torch's default_hooks.allreduce_hook by register_comm_hook to have them recorded"
        )
    has_tensors = _has_distributed_tensors(steps)
    if has_tensors and has_calls:
        yield "not recorded: what DTensors communicate inside of another call, as an implicit redistribution does"
    if has_calls:
        return
    if has_tensors:
        yield (
            "not recorded: what DTensors communicate inside of another call; their functional collectives are, where "
            "the recorder is the msprobe_hooks of this version"
        )
    if any(map(_FSDP.search, names)):
        yield "not recorded: the communication of FSDP; record again with the msprobe_hooks of this version"
    if all(len(step.ranks) == 1 for step in steps):
        yield "each step has the dump of one rank only; copy the dumps of all ranks into one folder"
    yield (
        "recorded are the collectives and messages of torch.distributed, functional collectives and "
        "mindspore.communication; what a library sends in C++ or in a compiled graph is in no dump"
    )


def _names(steps: Sequence[StepCommunication]) -> Iterator[str]:
    for step in steps:
        for dump in step.step.ranks.values():
            yield from dump.records


def _has_distributed_tensors(steps: Sequence[StepCommunication]) -> bool:
    first = next((dump for step in steps for dump in step.step.ranks.values()), None)
    return first is not None and any(MARK in bytes(raw) for raw in first.records.values())
