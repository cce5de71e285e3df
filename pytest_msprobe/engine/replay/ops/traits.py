"""Traits of operations: what a row of the tables of operations can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import torch

from pytest_msprobe.engine.replay.inputs import sparse_reads
from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint
from pytest_msprobe.engine.replay.inputs.points import Points
from pytest_msprobe.engine.replay.ops.canonical_factors import Alignment, Products, Undifferentiable
from pytest_msprobe.engine.replay.ops.cuts import Blocks
from pytest_msprobe.engine.replay.ops.open_elements import OpenElements
from pytest_msprobe.engine.replay.ops.running_results import Running
from pytest_msprobe.engine.replay.ops.selected_positions import RankedPositions, Selection
from pytest_msprobe.engine.replay.ops.several_writers import Writers
from pytest_msprobe.engine.replay.random_apis.attention_dropout import Readable
from pytest_msprobe.engine.replay.random_apis.probability_switch import SwitchOf
from pytest_msprobe.engine.replay.random_apis.random_property import PropertyOf

#: Modules of torch, its class of tensors, and the properties of one.
Home: TypeAlias = Literal[
    "torch", "torch.fft", "torch.nested", "torch.sparse", "torch.nn.functional", "torch.Tensor", "property"
]

#: What an operation does to the memory of a tensor, its elements left aside.
Storage: TypeAlias = Literal["read", "replaced"]

#: Terms whose scale `pytest_msprobe.modes.compare.judging.term_scales` computes, ...
Terms: TypeAlias = Literal[
    "addition", "interpolation", "added_product", "added_quotient", "sum", "mean", "product", "addend_and_product",
    "logarithm", "squared_loss", "class_loss", "loss", "cosine_loss", "divergence",
]  # fmt: skip
#: ... `gradient_scales`,
GradientTerms: TypeAlias = Literal[
    "product", "addend_and_product", "layer_norm", "rms_norm", "batch_norm", "unit_length", "softmax", "log_softmax",
    "cosine", "class_loss", "probability_loss", "difference_loss",
]  # fmt: skip
#: ... and steps whose size `culprits` does.
Step: TypeAlias = Literal["addition", "quotient", "added_quotient", "sign", "adam"]


#: Arguments of a call, by position and by name.
Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]


class Quantized(Protocol):
    """Results that hold numbers of few bits, of which a device may round some to the other side."""

    def accept(self, arguments: Arguments, target: list[Any], golden: list[Any]) -> None:
        """Replace the target's results by golden's, in place, where they are right."""

    def accept_argument(self, arguments: Arguments, found: Any, right: Any) -> Any:
        """Return golden's tensor for what a call wrote to an argument where that is right, else what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfo:
    """What is special about an operation; the defaults say that nothing is.

    Inputs: ``constraint`` mends drawn inputs for which the operation promises nothing; ``points`` puts into them where
    kernels differ and torch does not leave the result open; ``reads`` says which elements
    of a large one are read, so that the others need not be drawn; ``class_targets`` are widened to the 64 bits that
    torch's CPU asks for; ``index`` says that argument 1 is an index as between brackets;
    ``bare_sizes`` that whole numbers among the arguments themselves are sizes; ``on_cpu`` has the paths of tensors of
    whole numbers that torch wants on the CPU, wherever it computes.

    Results: ``random`` gives what results must be like that are drawn, ``switch`` the argument with which nothing is,
    ``readable`` inputs from whose results a mask that is drawn inside can be read;
    ``selection`` finds positions in the input;
    ``writers`` finds the places that are written to, of which some may be several times;
    ``running`` says along which dimension each is made of the one before;
    ``leaves_open`` finds elements that torch and the language leave open;
    ``alignment`` brings factors of matrices into golden's form, and ``products`` gives what they multiply to;
    ``undifferentiable`` finds in golden's results where there is no gradient;
    those of a dtype in ``quantizes`` are rounded, and ``quantized`` says so of the numbers that the call asks for;
    which are not defined at all says `msprobe_hooks.dump.effects`;
    ``of_dtype`` says that results are about the dtype itself, so that golden is computed in the recorded one.

    Changes: ``in_place`` says that an argument is written to, though the name does not end in an underscore;
    ``running_statistics`` is the position of the running mean, behind which the variance is, that are changed without
    torch's counting it.

    Lookup: ``found_in`` is where a record's name finds it though torch does not count it among its operations on
    tensors.

    Autocast: ``narrow_inside`` says that accelerators compute it in the narrow dtype though its result is float32,
    where the CPU's autocast widens its inputs.

    Math modes: ``recurrent`` says that products are those of a recurrent layer, for which devices have a switch of
    their own.

    Memory: ``storage`` says that the operation reads where elements are in memory, so that golden gets the layouts of
    the target, or replaces the memory of a tensor.

    Large calls: ``blocks`` says how they are cut into parts that are computed one after another.

    Comparisons of two runs: ``terms`` is what the results add up, ``gradient_terms`` what the gradients do, which may
    cancel, and ``step`` what an optimizer adds by this call. They read a table that is written from the rows, and take
    no account of underscores in names: the row of ``add`` is that of ``add_``.
    """

    constraint: Constraint | None = None
    points: Points | None = None
    reads: sparse_reads.Reads | None = None
    class_targets: bool = False
    index: bool = False
    bare_sizes: bool = False
    on_cpu: frozenset[str] = frozenset()
    random: PropertyOf | None = None
    switch: SwitchOf | None = None
    readable: Readable | None = None
    selection: Selection | RankedPositions | None = None
    writers: Writers | None = None
    leaves_open: OpenElements | None = None
    running: Running | None = None
    alignment: Alignment | None = None
    products: Products | None = None
    undifferentiable: Undifferentiable | None = None
    quantizes: frozenset[torch.dtype] = frozenset()
    quantized: Quantized | None = None
    of_dtype: bool = False
    in_place: bool = False
    running_statistics: int | None = None
    narrow_inside: bool = False
    recurrent: bool = False
    blocks: Blocks | None = None
    storage: Storage | None = None
    found_in: Home | None = None
    terms: Terms | None = None
    gradient_terms: GradientTerms | None = None
    step: Step | None = None


#: Rows of a table of operations: their names, separated by blanks, and what is special about them.
Rows: TypeAlias = tuple[tuple[str, OpInfo], ...]
