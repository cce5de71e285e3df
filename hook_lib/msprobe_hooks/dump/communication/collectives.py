"""Collectives by name, whichever framework recorded them, NPU operators that communicate too, and their order on ranks.

Every rank of a group should have made the same calls in the same order. Where one has not, the elements that follow
must not all be brought together with their neighbours: the sequences are aligned again behind the difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from msprobe_hooks.dump.names import is_forward, parse_api_name
from msprobe_hooks.dump.schema import Element, ForwardRecord, ValueElement, tensors_of

_PRODUCT = ("x1", "x2", "hcom", "world_size")
_GATHERED = ("self", "x2", "hcom", "world_size")
_EXCHANGED = ("gmm_x", "gmm_weight", "hcom", "ep_world_size", "send_counts", "recv_counts")
_QUANTIZED = (
    "gmm_x", "gmm_weight", "gmm_x_scale", "gmm_weight_scale", "hcom", "ep_world_size", "send_counts", "recv_counts",
    "gmm_y_dtype",
)  # fmt: skip
_EXPERTS = ("group_ep", "ep_world_size", "ep_rank_id", "moe_expert_num")

#: By operator, the names of its positional arguments.
FUSED: Mapping[str, tuple[str, ...]] = {
    "npu_mm_all_reduce_base": ("x1", "x2", "hcom"),
    "npu_all_gather_base_mm": _GATHERED,
    "npu_all_gather_quant_mm": _GATHERED,
    "npu_mm_reduce_scatter_base": _GATHERED,
    "npu_quant_mm_reduce_scatter": _GATHERED,
    "npu_all_to_all_matmul": (*_PRODUCT, "bias", "all2all_axes", "all2all_out_flag", "comm_mode"),
    "npu_matmul_all_to_all": (*_PRODUCT, "bias", "all2all_axes", "comm_mode"),
    "npu_all_to_all_quant_matmul": _PRODUCT,
    "npu_quant_matmul_all_to_all": (
        *_PRODUCT, "bias", "x1_scale", "x2_scale", "common_scale", "x1_offset", "x2_offset", "x1_quant_mode",
        "x2_quant_mode", "common_quant_mode", "group_sizes", "all2all_axes", "comm_quant_dtype", "x1_dtype",
        "x2_dtype", "x1_scale_dtype", "x2_scale_dtype", "output_scale_dtype", "comm_scale_dtype", "y_dtype",
        "comm_mode",
    ),
    "npu_alltoallv_gmm": _EXCHANGED,
    "npu_gmm_alltoallv": _EXCHANGED,
    "npu_alltoallv_quant_gmm": _QUANTIZED,
    "npu_quant_gmm_alltoallv": _QUANTIZED,
    "npu_moe_distribute_dispatch": ("x", "expert_ids", *_EXPERTS),
    "npu_moe_distribute_dispatch_v2": ("x", "expert_ids", *_EXPERTS),
    "npu_moe_distribute_combine": (
        "expand_x", "expert_ids", "expand_idx", "ep_send_counts", "expert_scales", *_EXPERTS,
    ),
    "npu_moe_distribute_combine_v2": (
        "expand_x", "expert_ids", "assist_info_for_combine", "ep_send_counts", "expert_scales", *_EXPERTS,
    ),
    "npu_moe_distribute_combine_add_rms_norm": (
        "expand_x", "expert_ids", "expand_idx", "ep_send_counts", "expert_scales", "residual_x", "gamma", *_EXPERTS,
    ),
    "_npu_distribute_barrier": ("x_ref", "group", "world_size"),
}  # fmt: skip

#: The one that only waits.
BARRIER: Final = "_npu_distribute_barrier"

_PREFIX = "NPU."
_GROUPS = ("hcom", "group_ep", "group")
_SIZES = ("world_size", "ep_world_size")

SENDS = frozenset({"send", "isend", "send_object_list"})
RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
#: Several sends and receives in one call.
BATCH = "batch_isend_irecv"
#: One rank gives to all others.
FROM_ROOT = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "scatter_tensor"})
#: All ranks give to one.
TO_ROOT = frozenset({"reduce", "gather", "gather_object", "gather_into_tensor"})
#: Ranks wait for each other, and no values are given.
BARRIERS = frozenset({"barrier", "monitored_barrier"})

#: What the record of an asynchronous call says in place of an exception where no result was ever waited for.
NEVER_WAITED_FOR: Final = "never waited for"

#: Operations that reduce what ranks give, by the argument ``op``.
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"})

#: By operation, the argument whose tensors have the same dtypes and shapes on all ranks.
SHARED: Mapping[str, str] = {
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "all_reduce": "tensor",
    "broadcast": "tensor",
    "gather": "tensor",
    "gather_into_tensor": "tensor",
    "reduce": "tensor",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
    "scatter": "tensor",
}

#: By operation, the argument that holds the same on all ranks after the call.
EQUAL: Mapping[str, str] = {
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "all_reduce": "tensor",
    "broadcast": "tensor",
}

#: Operations after which values of several ranks can be compared; others leave each rank its own, or none.
COMPARABLE = frozenset({*EQUAL, "gather", "scatter", "all_to_all"})

#: Names of one operation, by the name that they share.
_SAME = {
    "_all_gather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_to_all_single_with_output_shape": "all_to_all_single",
    "all_to_all_with_output_shape": "all_to_all",
}

#: Positional arguments, by the operation's name.
_PARAMETERS = {
    "all_gather": ("tensor_list", "tensor", "group"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor", "group"),
    "all_gather_object": ("object_list", "obj", "group"),
    "all_reduce": ("tensor", "op", "group"),
    "all_to_all": ("output_tensor_list", "input_tensor_list", "group"),
    "all_to_all_single": ("output", "input", "output_split_sizes", "input_split_sizes", "group"),
    "barrier": ("group",),
    "broadcast": ("tensor", "src", "group"),
    "broadcast_object_list": ("object_list", "src", "group"),
    "gather": ("tensor", "gather_list", "dst", "group"),
    "gather_object": ("obj", "object_gather_list", "dst", "group"),
    "irecv": ("tensor", "src", "group", "tag"),
    "isend": ("tensor", "dst", "group", "tag"),
    "monitored_barrier": ("group",),
    "recv": ("tensor", "src", "group", "tag"),
    "recv_object_list": ("object_list", "src", "group"),
    "reduce": ("tensor", "dst", "op", "group"),
    "reduce_scatter": ("output", "input_list", "op", "group"),
    "reduce_scatter_tensor": ("output", "input", "op", "group"),
    "scatter": ("tensor", "scatter_list", "src", "group"),
    "scatter_object_list": ("scatter_object_output_list", "scatter_object_input_list", "src", "group"),
    "send": ("tensor", "dst", "group", "tag"),
    "send_object_list": ("object_list", "dst", "group"),
}

# Functions of mindspore.communication.comm_func, where they differ: they return what they receive.
_MINDSPORE_PARAMETERS = {
    "all_gather_into_tensor": ("tensor", "group"),
    "all_to_all": ("output_shape_list", "input_tensor_list", "group"),
    "all_to_all_single": ("output_shape", "tensor", "output_split_sizes", "input_split_sizes", "group"),
    "gather_into_tensor": ("tensor", "dst", "group"),
    "reduce_scatter_tensor": ("tensor", "op", "group"),
    "scatter_tensor": ("tensor", "src", "group"),
}

# How far behind a difference two sequences are looked through for where they agree again, and over how many elements
# they must then agree: one alone agrees by chance where a program repeats itself.
_WINDOW = 12
_AGREEING = 3

#: Elements that are one event: by sequence, the element's position in it.
Column: TypeAlias = dict[int, int]

# Nearest first, and as many of both before: one call in the place of another.
_STEPS = sorted(
    ((skipped, inserted) for skipped in range(_WINDOW + 1) for inserted in range(_WINDOW + 1) if skipped or inserted),
    key=lambda step: (max(step), abs(step[0] - step[1])),
)


def is_fused(name: str) -> bool:
    """Return whether a record is the forward direction of an operator that also communicates."""
    return name.startswith(_PREFIX) and name.split(".", 2)[1] in FUSED and is_forward(name)


def named_arguments(api: str, record: ForwardRecord) -> dict[str, Element]:
    """Return the arguments of a fused call by name."""
    return dict(zip(FUSED[api], record.args, strict=False)) | record.kwargs


def group_of(arguments: Mapping[str, Element]) -> str:
    """Return the name of the group in which a fused call communicates, empty where it is not recorded."""
    elements = (arguments.get(name) for name in _GROUPS)
    return next((text for element in elements if isinstance(text := _plain(element), str)), "")


def size_of(arguments: Mapping[str, Element]) -> int:
    """Return how many ranks a fused call says that its group has, 0 where it does not say."""
    elements = (arguments.get(name) for name in _SIZES)
    return next((size for element in elements if type(size := _plain(element)) is int), 0)


def _plain(element: Element) -> object:
    return element.value if isinstance(element, ValueElement) else None


def operation_of(api: str) -> str:
    """Return the name that all spellings of a collective share: ``_all_gather_base`` is ``all_gather_into_tensor``."""
    return _SAME.get(api, api)


@dataclass(frozen=True, slots=True)
class Communicated:
    """Arguments of a recorded communication, by name: ``before`` the call and ``after`` it.

    Most collectives write to their arguments; ``returned`` is what those of MindSpore's ``comm_func`` return instead.
    ``after`` is empty where the call has not returned.
    """

    api: str
    operation: str
    before: Mapping[str, Element]
    after: Mapping[str, Element]
    returned: Element = None

    @property
    def either(self) -> Mapping[str, Element]:
        """The arguments after the call, or before it where only that is recorded."""
        results = {name: element for name, element in self.after.items() if element is not None}
        return {**self.before, **results}


def read_communicated(record: ForwardRecord) -> Communicated:
    """Read a record of communication. Raises ValueError where its name follows no grammar."""
    name = parse_api_name(record.name)
    if is_fused(record.name):
        return Communicated(name.api, name.api, named_arguments(name.api, record), {}, record.output)
    operation = operation_of(name.api)
    tensors = tensors_of(record.args) or tensors_of(record.kwargs) or tensors_of(record.output)
    if name.type == "Distributed" and tensors and tensors[0].type.startswith("mindspore"):
        names = _positional(_MINDSPORE_PARAMETERS.get(operation) or _PARAMETERS.get(operation, ()), record)
        returned = record.output[0] if record.output else None
        return Communicated(name.api, operation, _named(names, record.args, record), {}, returned)
    names = _positional(_PARAMETERS.get(operation, ()), record)
    after = dict(zip((*names, *record.kwargs), record.output, strict=False))
    return Communicated(name.api, operation, _named(names, record.args, record), after)


def _positional(names: tuple[str, ...], record: ForwardRecord) -> tuple[str, ...]:
    """Return the names of a call's positional arguments, numbers for those that have none here."""
    count = len(record.args)
    return names[:count] if count <= len(names) else names + tuple(map(str, range(len(names), count)))


def _named(names: tuple[str, ...], values: list[Element], record: ForwardRecord) -> dict[str, Element]:
    return dict(zip(names, values, strict=True)) | record.kwargs


def align(sequences: Mapping[int, Sequence[Hashable]]) -> list[Column]:
    """Align the elements of sequences, in the order of most of them.

    An element at another place of its sequence, near by, is brought together with its equals; one that replaces
    others, with these. The names of the sequences change nothing.
    """
    rows = {name: tuple(sequence) for name, sequence in sequences.items() if sequence}
    if not rows:
        return []
    if len(set(rows.values())) == 1:
        length = len(next(iter(rows.values())))
        return [dict.fromkeys(rows, place) for place in range(length)]
    common = _common(list(rows.values()))
    columns: list[Column] = [{} for _ in common]
    extra = defaultdict[int, dict[int, list[int]]](lambda: defaultdict(list))
    pairs: dict[tuple[Hashable, ...], list[tuple[int | None, int]]] = {}
    for name, sequence in rows.items():
        if sequence not in pairs:
            pairs[sequence] = list(_pairs(common, sequence))
        behind = 0
        for place, own in pairs[sequence]:
            if place is None:
                extra[behind][name].append(own)
            else:
                columns[place][name] = own
                behind = max(behind, place + 1)
    return [column for place in range(len(common) + 1) for column in _inserted(columns, extra, place, rows)]


def _inserted(
    columns: list[Column],
    extra: Mapping[int, Mapping[int, list[int]]],
    place: int,
    sequences: Mapping[int, Sequence[Hashable]],
) -> Iterator[Column]:
    """Yield what only some sequences have before a place of the common one, and then that place."""
    own = extra.get(place, {})
    among = align({name: [sequences[name][i] for i in places] for name, places in own.items()})
    for column in among:
        yield {name: own[name][i] for name, i in column.items()}
    if place < len(columns):
        yield columns[place]


def _common(sequences: list[tuple[Hashable, ...]]) -> tuple[Hashable, ...]:
    """Return the sequence that most follow: at each place what most of those say that have agreed so far."""
    followers = sequences
    common: list[Hashable] = []
    while True:
        place = len(common)
        votes = Counter(sequence[place] for sequence in followers if len(sequence) > place)
        if not votes:
            return tuple(common)
        if len(votes) == 1:
            common.append(next(iter(votes)))
            continue
        length = {element: _longest(followers, place, element) for element in votes}
        # Equal votes go to who has more to say, then to the content, so that no rank's number decides.
        winner = max(votes, key=lambda element: (votes[element], length[element], repr(element)))
        common.append(winner)
        followers = [follower for follower in followers if len(follower) <= place or follower[place] == winner]


def _longest(sequences: list[tuple[Hashable, ...]], place: int, element: Hashable) -> int:
    return max(len(sequence) for sequence in sequences if len(sequence) > place and sequence[place] == element)


def _pairs(common: Sequence[Hashable], own: Sequence[Hashable]) -> Iterator[tuple[int | None, int]]:
    """Yield for each element of a sequence its place in the common one, None where it has none there."""
    here = there = 0
    while there < len(own):
        if here < len(common) and common[here] == own[there]:
            yield here, there
            here, there = here + 1, there + 1
            continue
        skipped, inserted = _next_agreement(common, here, own, there)
        yield from _block(common, range(here, here + skipped), own, range(there, there + inserted))
        here, there = here + skipped, there + inserted


def _next_agreement(common: Sequence[Hashable], here: int, own: Sequence[Hashable], there: int) -> tuple[int, int]:
    """Return how many elements of both lie before the next place where they agree."""
    left, right = len(common) - here, len(own) - there
    near = [(skipped, inserted) for skipped, inserted in _STEPS if skipped <= left and inserted <= right]
    # A sequence that ends early agrees with the beginning of the other, if nothing agrees better.
    for may_end_early in (False, True):
        for skipped, inserted in near:
            behind = common[here + skipped : here + skipped + _AGREEING]
            ahead = own[there + inserted : there + inserted + _AGREEING]
            shared = min(len(behind), len(ahead)) if may_end_early else _AGREEING
            if behind[:shared] == ahead[:shared] and (shared or not may_end_early):
                return skipped, inserted
    return min(1, left), 1


def _block(
    common: Sequence[Hashable], places: range, own: Sequence[Hashable], positions: range
) -> Iterator[tuple[int | None, int]]:
    """Yield pairs where sequences differ: equal elements first, whatever their order; then what replaces another."""
    free = list(places)
    partners: dict[int, int | None] = {}
    for position in positions:
        equal = next((place for place in free if common[place] == own[position]), None)
        if equal is not None:
            free.remove(equal)
            partners[position] = equal
    rest = [position for position in positions if position not in partners]
    if len(rest) == len(free):
        partners |= zip(rest, free, strict=True)
    for position in positions:
        yield partners.get(position), position
