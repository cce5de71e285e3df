"""The rows of a baseline: what was measured of each output of a record, without its tensors."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pytest_msprobe.engine.replay.trials.baseline_protocol import INPUT_DTYPES, SCALARS
from pytest_msprobe.modes.check.baselines.saved_tensors import kept_of
from pytest_msprobe.results.result import DirectionResult, OutputResult

Size = Annotated[int, msgspec.Meta(ge=0, le=2**48)]
Numbers = dict[str, float]
Digest = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?\Z")]


class OutputRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output or gradient: its path, its verdict there, its dtypes and shape, and every number of it.

    ``metrics`` were counted by msprobe's bounds, ``own_metrics`` by ``own_bounds``, those of the standard that judged.
    Dtypes are empty for what is no tensor.
    """

    path: str
    outcome: str
    standard: str = ""
    reason: str = ""
    dtype: str = ""
    golden_dtype: str = ""
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=64)] = ()
    metrics: Numbers = {}
    own_bounds: Numbers = {}
    own_metrics: Numbers = {}

    def __post_init__(self) -> None:
        """Raise ValueError for a negative share: its square root is taken."""
        for numbers in (self.metrics, self.own_metrics):
            if numbers.get("tail_share", 0.0) < 0:
                raise ValueError(f"tail_share is {numbers['tail_share']}; it cannot be negative")


class RecordRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record: its outcome, its outputs, and what chose their standards in addition to API and dtype.

    ``dump`` is the fingerprint of the dump, empty where a table does not say it. ``of_table`` says that the paths are
    those of a table, ``output.0`` and so on for results and gradients alike. ``tensors`` is the digest of the file with
    the record's tensors, empty where there is none.
    """

    record: str
    dump: str = ""
    outcome: str = ""
    reason: str = ""
    input_dtypes: tuple[str, ...] = ()
    scalars: bool = False
    outputs: tuple[OutputRow, ...] = ()
    of_table: bool = False
    tensors: Digest = ""

    def output(self, path: str, position: int, of_table: bool = False) -> OutputRow | None:
        """Return the row of the output at a path, the ``position``-th tensor among all; None where there is none.

        ``of_table`` says that the path is a table's; where only one of the two is, the position decides.
        """
        if self.of_table == of_table:
            return next((output for output in self.outputs if output.path == path), None)
        tensors = self.measured
        return tensors[position] if position < len(tensors) else None

    @property
    def measured(self) -> list[OutputRow]:
        """The tensors that a table has rows for: a random result has no golden one to be measured against."""
        return [
            output for output in self.outputs if output.dtype and (output.golden_dtype or output.standard != "random")
        ]


def record_row(result: DirectionResult, dump: str) -> RecordRow:
    """Return the row of what came of a record."""
    kept = kept_of(result)
    return RecordRow(
        record=result.record,
        dump=dump,
        outcome=result.verdict.outcome,
        reason="" if result.outputs else result.verdict.reason,
        input_dtypes=tuple(result.extras.get(INPUT_DTYPES, ())),
        scalars=result.extras.get(SCALARS, False),
        outputs=tuple(map(_output_row, result.outputs)),
        tensors="" if kept is None else kept.digest,
    )


def _output_row(output: OutputResult) -> OutputRow:
    verdict = output.verdict
    return OutputRow(
        path=output.path,
        outcome=verdict.outcome,
        standard=verdict.standard,
        reason=verdict.reason,
        dtype=output.target_dtype,
        golden_dtype=output.golden_dtype,
        shape=output.shape,
        metrics=dict(output.measured),
        own_bounds=dict(output.own_bounds),
        own_metrics=dict(output.own_measured),
    )
