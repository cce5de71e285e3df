"""Recording as a context."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.config import settings

if TYPE_CHECKING:
    from msprobe_hooks.torch.session import Model, Session

_log = logging.getLogger("msprobe_hooks")


@contextmanager
def record(path: str | Path, level: str = "L1", *, model: Model | None = None, **options: Any) -> Iterator[Session]:
    """Record what runs inside into ``path/step0/rank``.

    ``model`` is needed at the levels L0 and mix. Options are named as the keys of ``config.json``. The context's value
    has ``step()`` to begin the next step, ``stop()`` and ``start()`` to pause, and ``summary``.

    Raises ConfigError for a wrong option, RecordingError where the dump cannot be written.
    """
    from msprobe_hooks.torch.session import Session

    session = Session(settings(path, level=level, **options), model)
    session.start()
    try:
        yield session
    finally:
        summary = session.close()
        _log.log(logging.WARNING if summary.records == 0 else logging.INFO, "%s", summary)
    if session.recorder.failure is not None:
        raise session.recorder.failure
