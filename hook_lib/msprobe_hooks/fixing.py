"""Fixing calls as a context: they run in another precision, so that what this changes can be watched."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.fix.call_filter import PRECISIONS, Fixed, Names, Precision
from msprobe_hooks.record import Framework, require_framework
from msprobe_hooks.recording import validators

if TYPE_CHECKING:
    from msprobe_hooks.recording.session import Model, Observer

_log = logging.getLogger("msprobe_hooks")


@contextmanager
def fix(
    *names: str,
    to: Precision = "float32",
    framework: Framework = "pytorch",
    model: Model | None = None,
    custom_op_namespaces: Sequence[str] = (),
) -> Iterator[Fixed]:
    """Run the calls named in another precision, forward and backward, while the context lasts.

    Names are those of records, ``Torch.matmul`` for every call and ``Torch.matmul.3`` for one, counted from the
    context's begin; ``*`` stands for anything. ``float32`` and ``float64`` raise what is in a lower precision; ``cpu``
    also moves the call to the CPU. Results come back in the dtype and on the device that the call would have had. The
    context's value counts what was raised and what was left as it was, and why; names that were never called are
    warned of at the end.

    ``custom_op_namespaces`` are the libraries whose operators are fixed too, as in a recording: ``mylib`` of
    ``torch.ops.mylib.swish``. A name such as ``torch.ops.mylib.swish`` says so as well.

    MindSpore's calls are fixed with ``framework="mindspore"``, and those of the primitives that cells hold where a
    ``model`` is given. There ``cpu`` is refused where MindSpore computes elsewhere.

    Raises ConfigError for a wrong argument.
    """
    if to not in PRECISIONS:
        raise ConfigError("to", to, f"one of {', '.join(PRECISIONS)}")
    chosen, fixed = Names(names, validators.names("custom_op_namespaces", custom_op_namespaces)), Fixed()
    if custom_op_namespaces and framework == "mindspore":
        raise ConfigError("custom_op_namespaces", custom_op_namespaces, "none for MindSpore: they are of torch.ops")
    from msprobe_hooks.recording.session import observing

    observers = _observers(framework, to, chosen, fixed, model)
    try:
        with observing(observers):
            yield fixed
    finally:
        fixed.unmet = chosen.unmet
        _log.log(logging.WARNING if fixed.unmet or not fixed.raised else logging.INFO, "%s", fixed)


def _observers(framework: Framework, to: Precision, chosen: Names, fixed: Fixed, model: Model | None) -> list[Observer]:
    def wanted(qualified: str, number: int, _: object) -> bool:
        return chosen.admit(qualified, number)

    require_framework(framework)
    if framework == "mindspore":
        from msprobe_hooks.instruments.fix.mindspore_functions import FixingFunctions

        return FixingFunctions(to, wanted, fixed, model).observers()
    from msprobe_hooks.instruments.fix.torch_mode import FixingMode

    return FixingMode(to, wanted, fixed, chosen.namespaces).observers()
