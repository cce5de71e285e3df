"""Check of communicated values, by their bits where they were recorded: equal outputs, what ranks sent."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from msprobe_hooks.dump.communication.collectives import BATCH, COMPARABLE, EQUAL, Communicated, read_communicated
from msprobe_hooks.dump.communication.endpoints import End, batched
from msprobe_hooks.dump.communication.jsonl import Call
from msprobe_hooks.dump.schema import Element, Number, TensorElement, tensors_of
from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.messages import StepCommunication
from pytest_msprobe.extensions.communication.signature_check import Finding, differing
from pytest_msprobe.results.outcomes import BaseSkipReason

#: By which of their recorded properties values were compared, the weakest last; ``inputs``: computed again.
Means = Literal["inputs", "bits", "checksums", "statistics"]

#: A recorded tensor, with the call that it was recorded of.
Tensor: TypeAlias = tuple[Call, TensorElement]

#: Returns a text that the bits of a recorded tensor have to themselves; None where its file is not there.
ReadBits: TypeAlias = Callable[[Call, TensorElement], str | None]

# Sums of as many elements as tensors have, in float32, in another order.
_ROUNDING = 1e-5

# All ranks may hold the same after these, and not what was given.
_WITH_GIVEN = frozenset({"all_gather", "broadcast"})


_MEANS: list[Means] = ["bits", "checksums", "statistics"]
_SHOWN = 3
_NO_RANK = -1


@dataclass(frozen=True, slots=True)
class Compared:
    """Outcome of comparing values. ``means`` is None where none could be compared.

    ``rounding``: statistics agree but for the rounding of their sums. ``has_values``: the operation leaves values that
    are comparable between ranks, had they been recorded. ``skip`` says why values are not compared, with a ``detail``.
    """

    finding: Finding | None = None
    means: Means | None = None
    rounding: bool = False
    has_values: bool = True
    skip: BaseSkipReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Tensors that must be the same, by rank.

    ``sent`` is the one that they come from, where there is such a one: it is right. Not ``is_whole``: some are not
    recorded.
    """

    what: str
    tensors: Mapping[int, Tensor]
    sent: Tensor | None = None
    is_whole: bool = True


def compare_values(exchange: Exchange, step: StepCommunication, read_bits: ReadBits) -> Compared:
    """Compare what the ranks of a communication hold after it. Raises RecordError where a record is malformed."""
    members = exchange.members
    operation = members[0][1].operation
    if not exchange.is_point_to_point and operation not in COMPARABLE:
        return Compared(has_values=False)
    if any(call.progress != "ended" or not call.is_recorded for call, _ in members):
        return Compared()
    digests = {end.values for _, end in members}
    is_known = operation not in _WITH_GIVEN and len(digests) == 1 and None not in digests
    if is_known and step.dump(exchange.lead).task != "tensor":
        has_checksums = b'"md5"' in bytes(step.dump(exchange.lead).records[exchange.lead.name])
        return Compared(means="checksums" if has_checksums else "statistics")
    communicated_calls = [(call, read_communicated(step.dump(call).forward(call.name))) for call, _ in members]
    if exchange.is_point_to_point:
        return _worst([compare_copies(copies, read_bits) for copies in _message(exchange, communicated_calls)])
    of_rank = {call.rank: _Member(call, communicated) for call, communicated in communicated_calls}
    return _worst([compare_copies(copies, read_bits) for copies in _copies(exchange, of_rank)])


@functools.lru_cache(256)
def digest_of(element: TensorElement, folder: Path) -> str | None:
    """Return a digest of a recorded tensor's elements; None where its file is missing or it has no plain layout.

    Raises DumpError where the file is not what the dump says.
    """
    import torch

    from msprobe_standards.tensor_layouts import is_plain
    from pytest_msprobe.engine.values.tensor_files import load_tensor
    from pytest_msprobe.results.outcomes import Skip

    try:
        tensor = load_tensor(element, folder)
    except Skip:
        return None
    if not is_plain(tensor):
        return None
    elements = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(elements.numpy().data, digest_size=6).hexdigest()


class _Member:
    """A rank's part in a collective: its tensors by the name of the argument, before and after the call."""

    def __init__(self, call: Call, communicated: Communicated) -> None:
        self.call = call
        self._said = communicated

    def given(self, name: str, place: int) -> Tensor | None:
        """Return a tensor that the rank gave."""
        return self._at(self._said.before.get(name), place)

    def held(self, name: str) -> list[TensorElement]:
        """Return the tensors that the rank holds after the call."""
        element = self._said.after.get(name)
        return tensors_of([self._said.returned if element is None else element])

    def taken(self, name: str, place: int) -> Tensor | None:
        """Return one of the tensors that the rank holds after the call."""
        tensors = self.held(name)
        return (self.call, tensors[place]) if place < len(tensors) else None

    def _at(self, element: Element, place: int) -> Tensor | None:
        tensors = tensors_of([element])
        return (self.call, tensors[place]) if place < len(tensors) else None


def _copies(exchange: Exchange, members: Mapping[int, _Member]) -> Iterator[Copies]:
    """Yield the tensors of a collective that must be the same, on several ranks or before and after it."""
    end = exchange.members[0][1]
    operation, ranks = end.operation, sorted(exchange.expected or members)
    root = _NO_RANK if end.root is None else end.root
    if operation is not None and operation in EQUAL:
        yield from _equal(operation, root, ranks, members)
    elif operation == "gather" and root in members:
        for place, rank in enumerate(ranks):
            sent = members[rank].given("tensor", 0) if rank in members else None
            yield _copy(f"data from rank {rank}", members[root].taken("gather_list", place), sent)
    elif operation == "scatter":
        for place, rank in enumerate(ranks):
            sent = members[root].given("scatter_list", place) if root in members else None
            if rank in members:
                yield _copy(f"data for rank {rank}", members[rank].taken("tensor", 0), sent)
    elif operation == "all_to_all":
        for source in members:
            for rank, member in members.items():
                sent = members[source].given("input_tensor_list", ranks.index(rank))
                received = member.taken("output_tensor_list", ranks.index(source))
                yield _copy(f"data from rank {source} to rank {rank}", received, sent)


def _equal(operation: str, root: int, ranks: list[int], members: Mapping[int, _Member]) -> Iterator[Copies]:
    name = EQUAL[operation]
    results = {rank: member.held(name) for rank, member in members.items()}
    for place in range(max(map(len, results.values()))):
        source = None
        if operation == "broadcast" and root in members:
            source = members[root].given(name, place)
        elif operation == "all_gather" and place < len(ranks) and ranks[place] in members:
            source = members[ranks[place]].given("tensor", 0)
        tensors = {rank: (members[rank].call, own[place]) for rank, own in results.items() if place < len(own)}
        part = f" {place}" if operation == "all_gather" else ""
        yield Copies(f"output{part}", tensors, source, is_whole=len(tensors) == len(members))


def _copy(what: str, received: Tensor | None, sent: Tensor | None) -> Copies:
    tensors = {} if received is None else {received[0].rank: received}
    return Copies(what, tensors, sent, is_whole=sent is not None and received is not None)


def _message(exchange: Exchange, communicated_calls: list[tuple[Call, Communicated]]) -> Iterator[Copies]:
    """Yield what was sent with what was received."""
    sent: Tensor | None = None
    received: Tensor | None = None
    for (_, end), (call, communicated) in zip(exchange.members, communicated_calls, strict=True):
        element = _message_tensor(exchange, end, call, communicated)
        if element is not None:
            sent, received = ((call, element), received) if end.gives else (sent, (call, element))
    yield _copy("data sent", received, sent)


def _message_tensor(exchange: Exchange, end: End, call: Call, communicated: Communicated) -> TensorElement | None:
    elements = communicated.before if end.gives else communicated.after
    if communicated.api == BATCH:
        # The ends of a call are its messages, in their order.
        place = next(i for i, own in enumerate(call.ends) if own is end)
        messages = [entry.get("tensor") for entry in batched(elements.values())]
        element = messages[place] if place < len(messages) else None
    else:
        element = elements.get("tensor") or (None if end.gives else communicated.returned)
    return element if isinstance(element, TensorElement) else None


def compare_copies(copies: Copies, read_bits: ReadBits) -> Compared:
    """Compare tensors by the strongest of their properties that all of them have."""
    everyone = [*copies.tensors.values(), *([copies.sent] if copies.sent is not None else [])]
    if len(everyone) < 2 or not copies.is_whole:
        return Compared()
    means = _means(everyone, read_bits)
    if means is None:
        return Compared()
    texts = {rank: _text(tensor, means, read_bits) for rank, tensor in copies.tensors.items()}
    right = None if copies.sent is None else _text(copies.sent, means, read_bits)
    if len({*texts.values(), *([] if right is None else [right])}) == 1:
        return Compared(means=means)
    if means == "statistics" and _agree_but_for_rounding([element for _, element in everyone]):
        return Compared(means=means, rounding=True)
    return Compared(_finding(copies, texts, right), means)


def _finding(copies: Copies, texts: Mapping[int, str], right: str | None) -> Finding:
    if right is None or copies.sent is None:
        return differing(copies.what, texts) or Finding(copies.what)
    odd = frozenset(rank for rank, text in texts.items() if text != right)
    holders = ", ".join(f"rank {rank} holds {texts[rank]}" for rank in sorted(odd)[:_SHOWN])
    more = f" and {len(odd) - _SHOWN} more ranks differ" if len(odd) > _SHOWN else ""
    return Finding(f"{copies.what} differs: rank {copies.sent[0].rank} gave {right}, {holders}{more}", odd)


def _is_empty(element: TensorElement) -> bool:
    return 0 in element.shape


def _means(tensors: list[Tensor], read_bits: ReadBits) -> Means | None:
    elements = [element for _, element in tensors]
    if all(element.data_name is not None for element in elements) and None not in [read_bits(*one) for one in tensors]:
        return "bits"
    if all(element.checksum is not None for element in elements):
        return "checksums"
    return "statistics" if all(element.max is not None or _is_empty(element) for element in elements) else None


def _text(tensor: Tensor, means: Means, read_bits: ReadBits) -> str:
    """Return what a tensor is compared by, as a text."""
    call, element = tensor
    if means == "bits":
        return f"bits {read_bits(call, element)}"
    if means == "checksums":
        return f"{element.checksum}"
    numbers = (("max", element.max), ("min", element.min), ("mean", element.mean), ("norm", element.norm))
    return " ".join(f"{name} {number:.9g}" for name, number in numbers if number is not None)


def _agree_but_for_rounding(elements: list[TensorElement]) -> bool:
    """Return whether statistics differ only as sums of the same numbers in another order do."""
    first = elements[0]
    if any((str(one.max), str(one.min)) != (str(first.max), str(first.min)) for one in elements):
        return False
    scale = float(first.norm or 0.0)
    spread = scale / math.sqrt(math.prod(first.shape)) if first.shape else abs(scale)
    return all(
        _is_near(one.norm, first.norm, scale) and _is_near(one.mean, first.mean, spread + abs(float(first.mean or 0.0)))
        for one in elements
    )


def _is_near(a: Number | None, b: Number | None, scale: float) -> bool:
    if a is None or b is None:
        return a is b
    return str(a) == str(b) or abs(a - b) <= _ROUNDING * scale


def _worst(compared: list[Compared]) -> Compared:
    """Return what came of all: what differs, else what is unknown, else the weakest means."""
    findings = [one.finding for one in compared if one.finding is not None]
    if findings:
        ranks = frozenset[int]().union(*(finding.ranks for finding in findings))
        return Compared(replace(findings[0], ranks=ranks))
    if not compared or any(one.means is None for one in compared):
        return Compared()
    weakest = max((one.means for one in compared if one.means), key=_MEANS.index)
    return Compared(means=weakest, rounding=any(one.rounding for one in compared))
