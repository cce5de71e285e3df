"""Effects of calls on memory: what they write without reading it and what they leave undefined, in one table.

To add an operation, add its name to a row; extensions have rows of their own. The names are those that frameworks
share; what communication fills is listed by itself, since its names mean something else there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Final

from msprobe_hooks.dump.names import MODULE_TYPES, parse_api_name
from msprobe_hooks.installed_extensions import implementations

_FIRST = ("0", "self", "input")
_SECOND = ("1", "other")

#: What the argument that names groups of rows may hold.
GROUP_ENDS, GROUP_SIZES = "ends", "sizes"


@dataclass(frozen=True, slots=True)
class ValidRows:
    """The argument that says how many rows of the results are defined; those behind the last group are not.

    ``argument`` is its name and ``at`` its position, None where it is given by name alone. It holds the ends of the
    groups or, where the argument ``kind`` is 1 or ``holds`` says so, their sizes.
    """

    argument: str
    at: int | None = None
    kind: str = ""
    holds: str = GROUP_ENDS

    def count(self, groups: Sequence[int], kind: object = None) -> int:
        """Return how many rows the groups have together."""
        return sum(groups) if kind == 1 or self.holds == GROUP_SIZES else max(groups, default=0)


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of a call on memory that a reader of its record must know; the defaults are none.

    ``unread`` are the arguments whose values it does not read, by index and name: it writes to them, or asks for their
    form alone. ``undefined`` says that its results hold whatever was in memory; of several, those from ``defined`` on
    are. ``valid_rows`` says which rows of them are defined. ``carries`` says that the results are what the first
    argument held, looked at in another way or written to in part.
    """

    unread: frozenset[str] = field(default_factory=frozenset)
    undefined: bool = False
    defined: int | None = None
    valid_rows: ValidRows | None = None
    carries: bool = False

    def is_unread(self, position: str) -> bool:
        """Return whether the values of an argument, by index or name, are not read."""
        return position in self.unread

    def is_undefined(self, position: str) -> bool:
        """Return whether a result, by index, holds whatever was in memory."""
        if self.undefined:
            return True
        return self.defined is not None and position.isdigit() and int(position) >= self.defined


#: Arguments of communication that are only written to, by index and by name: what they hold before the call was never
#: computed.
RECEIVED: Mapping[str, tuple[str, ...]] = {
    "recv": ("0", "tensor"),
    "irecv": ("0", "tensor"),
    "all_gather": ("0", "tensor_list"),
    "gather": ("1", "gather_list"),
    "scatter": ("0", "tensor"),
    "reduce_scatter": ("0", "output"),
    "_reduce_scatter_base": ("0", "output"),
    "_all_gather_base": ("0", "output_tensor"),
    "all_to_all_single": ("0", "output"),
    "all_to_all": ("0", "output_tensor_list"),
    "all_gather_into_tensor": ("0", "output_tensor"),
    "reduce_scatter_tensor": ("0", "output"),
}

_TIMES_BETA = frozenset("addbmm addmm addmv addr baddbmm".split())

#: What the details of a record say of the values at a place that hold memory which nothing was written to yet.
UNDEFINED: Final = "undefined"

#: Operations whose results hold whatever was in memory.
UNDEFINED_RESULTS = frozenset(
    """
    empty empty_like empty_strided empty_permuted empty_with_format new_empty new_empty_strided Empty EmptyLike NewEmpty
    """.split()
)

_ROWS: tuple[tuple[str, Effects], ...] = (
    # Written to as a whole.
    (
        """copy_ copy fill_ fill zero_ zero normal_ uniform_ random_ exponential_ geometric_ cauchy_ log_normal_
        bernoulli_ _foreach_copy_ _foreach_zero_ InplaceCopy InplaceFillScalar InplaceFillTensor
        InplaceZero InplaceNormal InplaceUniform InplaceRandom InplaceExponential InplaceBernoulliScalar
        InplaceBernoulliTensor inplace_copy inplace_fill_scalar inplace_fill_tensor inplace_bernoulli_scalar
        inplace_bernoulli_tensor""",
        Effects(frozenset(_FIRST)),
    ),
    ("Assign assign", Effects(frozenset({"0", "variable"}))),
    # Asked for its form alone.
    (
        """zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full new_tensor
        ZerosLike OnesLike""",
        Effects(frozenset(_FIRST)),
    ),
    ("expand_as view_as reshape_as type_as", Effects(frozenset(_SECOND), carries=True)),
    (" ".join(sorted(UNDEFINED_RESULTS)), Effects(frozenset(_FIRST), undefined=True)),
    # Another look at the first argument, or a copy of it.
    (
        """__getitem__ alias as_strided chunk clone contiguous detach diagonal dsplit expand flatten hsplit moveaxis
        movedim narrow permute ravel reshape select slice split split_with_sizes squeeze swapaxes swapdims t
        tensor_split transpose unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze view
        vsplit _reshape_alias _to_copy _unsafe_view lift_fresh detach_ squeeze_ t_ transpose_ unsqueeze_ swapaxes_
        swapdims_ as_strided_ requires_grad_ to type float double half bfloat16 cpu cuda npu T mT H mH real imag""",
        Effects(carries=True),
    ),
    # Written to in part.
    (
        """__setitem__ index_put index_put_ _index_put_impl_ index_copy index_copy_ index_fill index_fill_ put put_
        scatter scatter_ masked_fill masked_fill_ masked_scatter masked_scatter_ fill_diagonal_ slice_scatter
        select_scatter diagonal_scatter""",
        Effects(carries=True),
    ),
    # Results that are not defined, or not for all drivers: rank and singular values.
    ("lstsq linalg_lstsq", Effects(defined=2)),
    ("BatchNorm", Effects(defined=1)),
)

#: Nothing that a reader of a record must know.
NO_EFFECTS = Effects()
_added: dict[str, ValidRows] = {}
_declared: dict[str, Effects] = {}
_OUT = frozenset({"out"})
# What ``out`` means to operators of other libraries is theirs to say.
_TAKING_OUT = frozenset({"Torch", "Functional", "Tensor", "Aten", "VF", "NPU", "Mint", "MintFunctional"})


@cache
def effects_of(qualified: str) -> Effects:
    """Return what a call of an API does, by its name with the type: ``Tensor.copy_``, ``torch.ops.aten.copy_.default``.

    Of modules nothing is known.
    """
    type_, _, api = qualified.partition(".")
    if type_ in MODULE_TYPES:
        return NO_EFFECTS
    if type_ == "Distributed":
        return Effects(frozenset(RECEIVED.get(api, ())))
    is_aten = type_ == "Aten" or api.startswith("ops.aten.")
    if api.startswith("ops.") and not is_aten:
        return NO_EFFECTS
    declared = operation_effects(api.removeprefix("ops.aten.").partition(".")[0] if is_aten else api.rpartition(".")[2])
    return replace(declared, unread=declared.unread | _OUT) if type_ in _TAKING_OUT or is_aten else declared


def is_times_zero(api: str, beta: object) -> bool:
    """Return whether an operation multiplies its first argument by a ``beta`` of 0: PyTorch does not read it then."""
    operations = {part.removesuffix("_") for part in api.split(".")}
    return str(beta) in ("0", "0.0", "-0.0") and not _TIMES_BETA.isdisjoint(operations)


def operation_effects(operation: str) -> Effects:
    """Return what an operation does, by its name without type, namespace and overload."""
    return _declared.get(operation) or _table().get(operation, NO_EFFECTS)


@cache
def _table() -> Mapping[str, Effects]:
    rows = chain(_ROWS, *(of_extension() for of_extension in implementations("operation_effects")))
    return {name: row for names, row in rows for name in names.split()}


def declare_effects(operation: str, effects: Effects) -> None:
    """Add what an operation does, by its name without type, namespace and overload."""
    if operation_effects(operation) != effects:
        _declared[operation] = effects
        effects_of.cache_clear()
        effects_of_record.cache_clear()


def valid_rows_of(operation: str) -> ValidRows | None:
    """Return what says how many rows of an operation's results are defined, None where all are."""
    return _added.get(operation) or operation_effects(operation).valid_rows


def set_valid_rows(rows: Mapping[str, ValidRows]) -> None:
    """Replace the operations of the user's that define some rows of their results alone."""
    _added.clear()
    _added.update(rows)


@cache
def effects_of_record(name: str) -> Effects:
    """Return what the call of a forward record does; of gradients, and of names without grammar, nothing is known."""
    try:
        parsed = parse_api_name(name)
    except ValueError:
        return NO_EFFECTS
    return effects_of(parsed.qualified_api) if parsed.direction == "forward" else NO_EFFECTS
