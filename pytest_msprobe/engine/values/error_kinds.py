"""Kinds of exceptions from an API, and their meaning for its verdict."""

from __future__ import annotations

import re

import torch

from pytest_msprobe.results.outcomes import message_of

_UNSUPPORTED = re.compile(
    r"not implemented for|not supported on|is not currently supported|Could not run '|not yet supported|"
    r"unsupported (?:data)?type|has not been implemented|not support(?:ed)? (?:for )?(?:dtype|data ?type)|"
    # MPS of float64; a backend that has no autocast.
    r"doesn't support (?:b?float|complex|double|u?int)|unsupported autocast device_type|Tried to use AMP with|"
    # torch_npu of an operator that the installed CANN does not have.
    r"GetWorkspaceSize not in libopapi\.so",
    re.IGNORECASE,
)
# torch_npu raises a RuntimeError where torch's own devices raise an OutOfMemoryError; so does a driver below them.
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|\bout of memory\b", re.IGNORECASE)
#: What torch raises for arguments that an operation does not take.
REFUSALS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError)


def is_unsupported(error: BaseException) -> bool:
    """Return whether an error says that there is no kernel for this API, dtype or device."""
    return isinstance(error, NotImplementedError) or bool(_UNSUPPORTED.search(message_of(error)))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out, on the CPU or on a device."""
    accelerator = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    return isinstance(error, (MemoryError, accelerator)) or (
        isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(message_of(error)))
    )
