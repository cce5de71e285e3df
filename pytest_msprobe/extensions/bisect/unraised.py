"""Calls that a search did not raise, so that nothing was found in them, and remedies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msprobe_hooks.extensions.fix.call_filter import UNNAMED_LIBRARY, Precision, library_of
from msprobe_hooks.extensions.fix.run_plan import Left

#: What to try where calls in a precision move nothing.
WIDER: Final[Mapping[Precision, str]] = {
    "float32": "--to float64 also raises float32",
    "float64": "there is no higher precision; --to cpu runs calls of a device with the kernels of the CPU",
    "cpu": "--to float64 also raises float32",
}

_SHOWN = 20


def left_text(left: Sequence[Left], calls: Collection[str], namespaces: Sequence[str]) -> list[str]:
    """Return lines on what ran as it is in every run, and on libraries of ``namespaces`` without a call.

    ``calls`` are the calls that can be raised. There are no lines where there is nothing to say.
    """
    lines = [*_unmet_lines(left, calls, namespaces), *_left_lines(left)]
    if not lines:
        return []
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return ["Not raised, so not searched:", *lines[:_SHOWN], *more]


def _left_lines(left: Sequence[Left]) -> Iterator[str]:
    for call in left:
        if call.reason == UNNAMED_LIBRARY:
            yield f"  {call.api}: pass --custom-op-namespaces {library_of(call.api)}"
        else:
            yield f"  {call.api}: {call.reason}"


def _unmet_lines(left: Sequence[Left], calls: Collection[str], namespaces: Sequence[str]) -> Iterator[str]:
    met = {library_of(name) for name in (*calls, *(call.api for call in left))}
    for namespace in namespaces:
        if namespace not in met:
            yield f"  --custom-op-namespaces {namespace}: no operator of it with a result to change was called"
