"""Recorded inputs for modules of a running program. Needs the extension mindspore.

`feed` gives chosen modules the inputs that a dump recorded for them, so that no error that arose before them reaches
them; the key ``load`` of ``config.json`` does so between ``start`` and ``stop`` of a ``PrecisionDebugger``.
Public name: ``feed``. Key of ``config.json``: ``load``. It adds no command.
Files: none; what then runs is recorded as ever.
Without it ``msprobe_hooks`` has no ``feed``, and ``load`` is refused.
Take it out by deleting this folder and tests/extensions/feed.

Importing its modules loads isal, mindspore, msgspec and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe_hooks.extensions.feed.feeding import FedSteps
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.session import Session

EXPORTS = {"feed": "feeding"}


def open_feeding(load: Any, session: Session, framework: Framework) -> FedSteps | None:
    """Return what feeds modules as ``load`` says."""
    from msprobe_hooks.extensions.feed.feeding import FedSteps, read_load

    settings = read_load(load)
    return None if settings is None else FedSteps(settings, session, framework)
