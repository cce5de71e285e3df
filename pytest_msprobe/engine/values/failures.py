"""What an exception from an API means for its verdict."""

from __future__ import annotations

import re

import torch

_UNSUPPORTED = re.compile(
    r"not implemented for|not supported on|is not currently supported|Could not run '|not yet supported|"
    r"unsupported (?:data)?type|has not been implemented|not support(?:ed)? (?:for )?(?:dtype|data ?type)",
    re.IGNORECASE,
)

_MAX_LENGTH = 400


def is_unsupported(error: BaseException) -> bool:
    """Tell whether an error says that there is no kernel for this API, dtype or device."""
    return isinstance(error, NotImplementedError) or bool(_UNSUPPORTED.search(str(error)))


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out, on the CPU or on a device."""
    accelerator = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    return isinstance(error, (MemoryError, accelerator)) or "can't allocate memory" in str(error)


def describe_error(error: BaseException) -> str:
    """Return an error's kind and the first lines of its text; native stack traces are left out."""
    text = str(error).split("Exception raised from")[0].split("\nC++ CapturedTraceback")[0].strip()
    shortened = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
    return f"{type(error).__name__}: {shortened}" if shortened else type(error).__name__
