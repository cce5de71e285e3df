"""Context in which calls run in another precision, so that the effect can be watched."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.fix.call_filter import Fixed, Names
from msprobe_hooks.record import Framework, require_framework
from msprobe_hooks.recording import validators
from msprobe_hooks.recording.upcasts import PRECISIONS, Precision

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
    """Run the named calls in another precision, forward and backward, inside the context.

    Results come back in the dtype and on the device that the call would have had. The context's value counts the calls
    that were raised, and those that ran unchanged, with the reason; a warning at the end lists names that were never
    called.

    Args:
        names: Names of records: ``Torch.matmul`` for every call, ``Torch.matmul.3`` for one, counted from the start of
            the context, ``*`` for anything.
        to: ``float32`` and ``float64`` raise lower precisions; ``cpu`` also moves the call to the CPU, and needs a
            MindSpore that computes there.
        framework: ``pytorch`` or ``mindspore``.
        model: With MindSpore, the model whose cells' primitives are fixed too.
        custom_op_namespaces: Libraries whose operators are fixed too: ``mylib`` of ``torch.ops.mylib.swish``. A name
            such as ``torch.ops.mylib.swish`` adds its library.

    Raises:
        ConfigError: An argument is wrong.
    """
    if to not in PRECISIONS:
        raise ConfigError("to", to, ", ".join(PRECISIONS), known=PRECISIONS)
    selection, fixed = Names(names, validators.names("custom_op_namespaces", custom_op_namespaces)), Fixed()
    if custom_op_namespaces and framework == "mindspore":
        raise ConfigError("custom_op_namespaces", custom_op_namespaces, "not supported with MindSpore")
    from msprobe_hooks.recording.session import observing

    observers = _observers(framework, to, selection, fixed, model)
    try:
        with observing(observers):
            yield fixed
    finally:
        fixed.unmet, fixed.seen = selection.unmet, selection.seen
        _log.log(logging.WARNING if fixed.unmet or not fixed.raised else logging.INFO, "%s", fixed)


def _observers(
    framework: Framework, to: Precision, selection: Names, fixed: Fixed, model: Model | None
) -> list[Observer]:
    def wanted(qualified: str, number: int, _: object) -> bool:
        return selection.admit(qualified, number)

    require_framework(framework)
    if framework == "mindspore":
        from msprobe_hooks.extensions.fix.mindspore_functions import FixingFunctions

        return FixingFunctions(to, wanted, fixed, model).observers()
    from msprobe_hooks.extensions.fix.torch_mode import FixingMode

    return FixingMode(to, wanted, fixed, selection.namespaces).observers()
