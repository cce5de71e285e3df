"""Settings of MindSpore in this process."""

from __future__ import annotations

import mindspore
from mindspore.communication import GlobalComm, get_rank

from msprobe_hooks.errors import ConfigError, RecordingError

_OLDEST = (2, 9)


def process_rank() -> int | None:
    """Return this process's rank, None where communication is not initialised."""
    return int(get_rank()) if GlobalComm.INITED else None


def require_backward_passes() -> None:
    """Raise RecordingError where MindSpore does not say which backward pass runs, and what its nodes are."""
    version = tuple(int(part) for part in mindspore.__version__.split(".")[:2])
    if version < _OLDEST:
        raise RecordingError(
            f"MindSpore {mindspore.__version__} cannot be recorded, as it does not say which call a gradient is of; "
            "install MindSpore 2.9 or newer, or record with msprobe, whose dumps can be checked here"
        )


def is_pynative() -> bool:
    """Return whether calls run one by one, and not as a graph."""
    return bool(mindspore.get_context("mode") == mindspore.PYNATIVE_MODE)


def require_pynative() -> None:
    """Raise ConfigError where no call can be seen: in graph mode."""
    if not is_pynative():
        raise ConfigError("mode", "GRAPH_MODE", "mindspore.PYNATIVE_MODE, as calls inside a graph cannot be observed")
