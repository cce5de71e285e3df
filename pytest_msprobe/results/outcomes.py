"""Outcomes of an item: with a verdict, or without one, for a reason that a run's summary counts."""

from __future__ import annotations

import traceback
from enum import Enum
from types import TracebackType


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


class Breakdown(Enum):
    """Reason why an item failed before there was anything to measure; the value is what reports call it."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    ERROR = "error"
    RUN = "run"
    RECORD = "record"
    POLICY = "policy"
    BASELINE = "baseline"
    TEST = "test"

    @property
    def did_not_end(self) -> bool:
        """Return whether the item never came to its end; such an item has an outcome of its own."""
        return self in _DID_NOT_END

    @property
    def may_break_device(self) -> bool:
        """Return whether the device may be unusable after it."""
        return self in (Breakdown.RUN, Breakdown.TIMEOUT, Breakdown.OOM, Breakdown.ERROR)


_DID_NOT_END = (Breakdown.CRASH, Breakdown.TIMEOUT, Breakdown.OOM, Breakdown.ERROR)

#: The outcomes of items that did not end.
UNFINISHED = tuple(kind.value for kind in _DID_NOT_END)

#: What may come of an item: a verdict's outcomes, and those of items that did not end.
OUTCOMES = ("pass", "warn", "fail", "skip", *UNFINISHED)


# Of a longer text nothing more is looked at: a device may put megabytes into one.
_READ = 20_000

_MAX_LENGTH = 400

# A deep recursion has thousands.
_FRAMES = 8

# What stands between a check and the user's code.
_OURS = "pytest_msprobe"
_LIBRARIES = (_OURS, "torch", "mindspore")


def message_of(error: BaseException) -> str:
    """Return the beginning of what an error says, also where that cannot be asked or is no UTF-8."""
    try:
        text = str(error)[:_READ]
    except BaseException as second:
        # Whatever this is, the first error is the one to report.
        text = f"(its text cannot be made: {type(second).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def describe_error(error: BaseException) -> str:
    """Return an error's kind and the first lines of its text; native stack traces are left out."""
    kind = type(error).__name__
    text = message_of(error).split("Exception raised from")[0].split("\nC++ CapturedTraceback")[0].strip()
    shortened = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
    return f"{kind}: {shortened}" if shortened else kind


def place_of(error: BaseException) -> str:
    """Return where an error was raised, as the last lines of its traceback; empty where that is not known."""
    # The text of the error is not repeated: it can be large, or fail to be made.
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES)).rstrip()
    return f"Raised at (most recent call last):\n{frames}" if frames else ""


def users_error(error: BaseException) -> BaseException:
    """Return the error that the user's code raised, with its traceback from the user's first frame on.

    Some errors are raised again by this package, such as those of MindSpore, whose text quotes native stacks.
    """
    while error.__cause__ is not None and _packages(error.__traceback__)[-1:] == [_OURS]:
        error = error.__cause__
    return error.with_traceback(_users_part(error.__traceback__))


def _users_part(raised: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames before the user's first; without one, the last frame if it is not ours."""
    packages = _packages(raised)
    skipped = next((place for place, package in enumerate(packages) if package not in _LIBRARIES), len(packages))
    if skipped == len(packages) and packages and packages[-1] != _OURS:
        skipped -= 1
    for _ in range(skipped):
        raised = raised and raised.tb_next
    return raised


def _packages(raised: TracebackType | None) -> list[str]:
    """Return the package of each frame of a traceback."""
    packages = []
    while raised is not None:
        packages.append(str(raised.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        raised = raised.tb_next
    return packages
