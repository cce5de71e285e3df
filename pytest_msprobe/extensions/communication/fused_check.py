"""Check of fused calls: what each rank got against what the inputs of all ranks give.

Products are computed again in float64 from the recorded tensors of all ranks; what is only moved must have the same
bits. Without tensors, what all ranks hold alike is compared as of other communication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msprobe_hooks.dump.communication.collectives import BARRIER, FUSED, Communicated, read_communicated, size_of
from msprobe_hooks.dump.communication.jsonl import Call
from msprobe_hooks.dump.schema import TensorElement, tensors_of
from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.messages import StepCommunication
from pytest_msprobe.extensions.communication.signature_check import Finding
from pytest_msprobe.extensions.communication.value_check import Compared, Copies, ReadBits, compare_copies
from pytest_msprobe.results.outcomes import BaseSkipReason, Skip

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_msprobe.extensions.npu_operators.matmul.between_ranks import Group, Result

#: By operator, the results that all ranks hold alike.
_ALIKE: Mapping[str, tuple[int, ...]] = {
    "npu_mm_all_reduce_base": (0,),
    "npu_all_gather_base_mm": (1,),
    "npu_all_gather_quant_mm": (1,),
}


class FusedSkip(BaseSkipReason):
    """Reason why a call that computes and communicates is not computed again."""

    NO_TENSORS = "its products are computed again from the tensors of all ranks: record them (task tensor)"
    NO_RANKS = "the other ranks of its group have no dump here"
    NO_DEFINITION = "no golden definition for what its ranks compute together"


@dataclass(frozen=True, slots=True)
class _Member:
    """A rank's call with its arguments and results as tensors."""

    rank: int
    arguments: Mapping[str, Any]
    results: list[Any]


def compare_fused(exchange: Exchange, step: StepCommunication, read_bits: ReadBits) -> Compared:
    """Compare the results of ranks with what their inputs give. Raises DumpError where a tensor's file is unusable."""
    api = exchange.lead.name.split(".", 2)[1]
    communicated = {call.rank: read_communicated(step.dump(call).forward(call.name)) for call, _ in exchange.members}
    size = size_of(communicated[exchange.lead.rank].before)
    if api == BARRIER:
        return Compared(has_values=False)
    if not size and (len(communicated) == 1 or step.absent):
        return Compared(skip=FusedSkip.NO_RANKS)
    if not all(map(_has_files, communicated.values())):
        return _compare_alike(api, exchange, communicated, read_bits)
    try:
        members = [_read(call, step) for call, _ in exchange.members]
        expected = _expected(api, members, size or len(communicated))
    except Skip:
        return Compared(skip=FusedSkip.NO_TENSORS)
    except NotImplementedError as error:
        return Compared(skip=FusedSkip.NO_DEFINITION, detail=str(error))
    except (IndexError, KeyError, RuntimeError, ValueError) as error:
        return Compared(skip=FusedSkip.NO_DEFINITION, detail=f"{api} does not fit its tensors: {error}")
    if expected is None:
        return Compared(skip=FusedSkip.NO_RANKS)
    return _compared_with(expected, members, size or len(communicated))


def _compared_with(expected: list[tuple[Result, ...]], members: list[_Member], size: int) -> Compared:
    source = "what arrived there" if len(members) < size else "the input of all ranks"
    findings = [
        Finding(
            f"result {place} of rank {member.rank} is not what comes of {source}: {words}", frozenset({member.rank})
        )
        for member, results in zip(members, expected, strict=True)
        for place, words in _differences(member.results, results)
    ]
    if findings:
        ranks = frozenset[int]().union(*(finding.ranks for finding in findings))
        return Compared(Finding(findings[0].words, ranks))
    if len(members) < size:
        return Compared(skip=FusedSkip.NO_RANKS, detail="what arrived gives the recorded products")
    return Compared(means="inputs")


def _has_files(communicated: Communicated) -> bool:
    tensors = tensors_of([*communicated.before.values(), communicated.returned])
    return all(tensor.data_name is not None or 0 in tensor.shape for tensor in tensors)


def _compare_alike(
    api: str, exchange: Exchange, communicated: Mapping[int, Communicated], read_bits: ReadBits
) -> Compared:
    """Compare what all ranks hold alike; where nothing is, or it agrees, the products are not computed again."""
    for place in _ALIKE.get(api, ()):
        tensors = {}
        for call, _ in exchange.members:
            results = communicated[call.rank].returned
            element = results[place] if isinstance(results, list) and place < len(results) else None
            if isinstance(element, TensorElement) and 0 not in element.shape:
                tensors[call.rank] = (call, element)
        compared = compare_copies(
            Copies(f"result {place}", tensors, is_whole=len(tensors) == len(communicated)), read_bits
        )
        if compared.finding is not None:
            return compared
    return Compared(skip=FusedSkip.NO_TENSORS)


def _read(call: Call, step: StepCommunication) -> _Member:
    from pytest_msprobe.engine.replay.call import read_call
    from pytest_msprobe.engine.replay.calls.arguments import build_arguments
    from pytest_msprobe.engine.values.tensor_files import load_tensor

    dump = step.dump(call)
    recorded = read_call(dump, call.name, with_backward=False)
    arguments = build_arguments(recorded, seed=0, real_data=True)
    names = FUSED[recorded.name.api]
    results = [
        load_tensor(element, dump.tensor_folder) if isinstance(element, TensorElement) and element.data_name else None
        for element in recorded.forward.output
    ]
    return _Member(call.rank, dict(zip(names, arguments.args, strict=False)) | arguments.kwargs, results)


def _expected(api: str, members: list[_Member], size: int) -> list[tuple[Result, ...]] | None:
    """Return what each rank should have; None where that takes ranks that are missing."""
    import torch

    from pytest_msprobe.extensions.npu_operators.matmul import between_ranks, exchanged_groups

    name = api.removesuffix("_v2")
    group: Group | None = getattr(between_ranks, name, None) or getattr(exchanged_groups, name, None)
    if group is None:
        raise NotImplementedError(f"{api} sends rows back in an order that no documentation gives")
    first = next((result for result in members[0].results if result is not None and result.is_floating_point()), None)
    unit = torch.finfo(torch.float32 if first is None else first.dtype).eps
    if len(members) == size:
        return group([member.arguments for member in members], unit)
    arrived = [_from_arrived(name, member, size, unit) for member in members]
    return None if None in arrived else [results for results in arrived if results is not None]


def _from_arrived(name: str, member: _Member, size: int, unit: float) -> tuple[Result, ...] | None:
    """Return what a rank should have by what arrived there, where that is a result too and has no scales."""
    from pytest_msprobe.extensions.npu_operators.matmul import between_ranks, exchanged_groups

    call, results = member.arguments, member.results
    if name == "npu_all_gather_base_mm" and results[1] is not None and call.get("x1_scale") is None:
        return between_ranks.npu_all_gather_base_mm([{**call, "self": results[1]}], unit)[0]
    if name == "npu_all_to_all_matmul" and results[1] is not None:
        return between_ranks.npu_all_to_all_matmul([{**call, "x1": results[1]}], unit)[0]
    if name == "npu_alltoallv_gmm" and results[2] is not None:
        sizes = exchanged_groups.sizes_of_arrived(call, size)
        return exchanged_groups.products_of_arrived(name, call, results[2], sizes, unit)
    return None


def _differences(results: list[Any], expected: tuple[Result, ...]) -> Iterator[tuple[int, str]]:
    """Yield the place of each result that is another one than expected, and in words how it differs."""
    for place, (actual, reference) in enumerate(zip(results, expected, strict=False)):
        words = None if actual is None or reference is None else _difference(actual, reference)
        if words is not None:
            yield place, words


def _difference(actual: Tensor, expected: Any) -> str | None:
    import torch

    from pytest_msprobe.extensions.npu_operators.matmul.between_ranks import Segments

    if isinstance(expected, Segments):
        return _unlike_segments(actual, expected.rows)
    shape = expected.shape if isinstance(expected, torch.Tensor) else expected.value.shape
    if actual.shape != shape:
        return f"its shape is {tuple(actual.shape)} in place of {tuple(shape)}"
    if isinstance(expected, torch.Tensor):
        same = actual.double() == expected.double()
        same |= actual.double().isnan() & expected.double().isnan()
        values, limit = expected.double(), torch.zeros(())
    else:
        kind = torch.finfo(actual.dtype) if actual.is_floating_point() else None
        values, least = expected.value, 0.5 if kind is None else kind.smallest_normal * kind.eps
        limit = 2 * expected.error + least
        same = (actual.double() - values).abs() <= limit
        # What is beyond the greatest number may be infinite.
        same |= (actual.double() == values.sign() * torch.inf) & (kind is not None and values.abs() > kind.max / 2)
        same |= ~values.isfinite()
    if bool(same.all()):
        return None
    wrong = (~same).nonzero()
    first = tuple(wrong[0].tolist())
    allowed = f" +- {float(limit[first]):.3g}" if limit.dim() else ""
    return (
        f"{len(wrong)} of {same.numel()} numbers differ, element {first} is {float(actual[first]):.6g} in place of "
        f"{float(values[first]):.6g}{allowed}"
    )


def _unlike_segments(actual: Tensor, segments: tuple[Tensor, ...]) -> str | None:
    """Return in words the first segment whose rows are others than wanted, in whatever order they are."""
    start = 0
    for place, segment in enumerate(segments):
        rows = actual[start : start + len(segment)]
        if sorted(rows.double().tolist()) != sorted(segment.double().tolist()):
            return f"the {len(segment)} rows of expert {place} are not those that were sent to it"
        start += len(segment)
    return None
