"""Fixing calls as a context: they run in another precision, so that what this changes can be watched."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.fix.choice import PRECISIONS, Fixed, Names, Precision

_log = logging.getLogger("msprobe_hooks")


@contextmanager
def fix(*names: str, to: Precision = "float32") -> Iterator[Fixed]:
    """Run the calls named in another precision, forward and backward, while the context lasts.

    Names are those of records, ``Torch.matmul`` for every call and ``Torch.matmul.3`` for one, counted from the
    context's begin; ``*`` stands for anything. ``float32`` and ``float64`` raise what is in a lower precision; ``cpu``
    also moves the call to the CPU. Results come back in the dtype and on the device that the call would have had. The
    context's value counts what was raised and what was left as it was, and why; names that were never called are
    warned of at the end.

    Raises ConfigError for a wrong argument.
    """
    if to not in PRECISIONS:
        raise ConfigError("to", to, f"one of {', '.join(PRECISIONS)}")
    chosen, fixed = Names(names), Fixed()
    from msprobe_hooks.instruments.fix.torch_mode import FixingMode
    from msprobe_hooks.recording.session import observing

    mode = FixingMode(to, lambda qualified, number, _: chosen.admit(qualified, number), fixed, chosen.namespaces)
    try:
        with observing(mode.observers()):
            yield fixed
    finally:
        fixed.unmet = chosen.unmet
        _log.log(logging.WARNING if fixed.unmet or not fixed.raised else logging.INFO, "%s", fixed)
