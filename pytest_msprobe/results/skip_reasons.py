"""Reasons of items without a verdict, named, which a run's summary counts."""

from __future__ import annotations

from enum import Enum


class BaseSkipReason(str, Enum):
    """Base of the reasons that a kind of run declares: a member for each, whose value is the text that users read.

    Results hold the text, so that journals and reports of workers are read without the class.
    """

    __str__ = str.__str__


def skip_reason(text: str) -> BaseSkipReason | None:
    """Return the reason that users read as this text, of all that this process has declared; None for another text."""
    declared = (reason for kind in BaseSkipReason.__subclasses__() for reason in kind)
    return next((reason for reason in declared if reason.value == text), None)


class SkipReason(BaseSkipReason):
    """The reasons that checks of calls have, whatever kind of run makes them."""

    COLLECTIVE = "collective communication needs its other ranks"
    FUSED_COMMUNICATION = "communicates: check its ranks with --msprobe-communication"
    UNKNOWN_API = "this torch has no such API"
    UNKNOWN_LIBRARY = (
        "no loaded library has this operator: import its library in conftest.py (or -p), "
        "or register its golden definition with pytest_msprobe_register_references"
    )
    COMPILED_KERNEL = (
        "a kernel of a compiled graph, whose code is not in the recording: record with golden_path and compare both"
    )
    FAKE_TENSORS = "a compiler or tracer made this call: its tensors are FakeTensors, which have no values"
    OTHER_FRAMEWORK = "the record is of another framework than its dump"
    NOT_AN_OPERATION = "not an operation with a result to judge"
    NO_REFERENCE = "no golden definition for this NPU API"
    RAISED = "the call raised when it was recorded"
    NO_ARGUMENTS = "the dump holds no arguments for this record"
    LOST_ARGUMENT = "the recording lost an argument's value"
    UNBOUNDED_NUMBERS = (
        "its whole numbers may be places in memory, which statistics do not give: record this API's tensors"
    )
    UNKNOWN_DTYPE = "this torch has no such dtype"
    MISSING_TENSOR_FILE = "the recorded tensor file is missing"
    REJECTED_INPUTS = "the API rejects the rebuilt inputs on the CPU too"
    UNSUPPORTED = "the device does not implement this API for these dtypes"
    NO_GOLDEN = "the CPU cannot compute a golden result"
    NO_FORWARD = "the dump holds no forward record for this backward record"
    FORWARD_FAILED = "the forward call could not be run"
    NO_GRADIENT = "nothing to differentiate"
    UNSPECIFIED = "the API promises no values that could be judged"
    NO_BASELINE = "recorded numbers that this depends on are missing"
    NO_STATISTICS = "the dump holds no statistics of this record's tensors"
    MEMORY = "too large for the free memory"


class Skip(Exception):  # noqa: N818 - an outcome, not an error
    """Raised where a record cannot be judged; ``detail`` says what was met."""

    def __init__(self, reason: BaseSkipReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail
