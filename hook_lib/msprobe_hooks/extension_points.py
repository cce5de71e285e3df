"""Extension points of the library: names that the package of an extension may have, and what they stand for.

A name that is absent adds nothing. A function imports what it needs when it is called and returns None for what is not
its own; the first that returns something else wins. What no extension takes is the core's own, or is refused.

``EXPORTS``             Public names of `msprobe_hooks`, with the modules of the extension that define them.
``MINDSPORE_EXPORTS``   The same for `msprobe_hooks.mindspore`.
``FRAMEWORKS``          The frameworks besides PyTorch that the extension records.
``TASKS``               The tasks of PrecisionDebugger that the extension opens, by one of the next two.
``open_task``           `OpenTask`
``open_probe``          `OpenProbe`
``open_session``        `OpenSession`
``open_feeding``        `OpenFeeding`
``open_switch``         `OpenSwitch`
``open_dump``           `OpenDump`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msprobe_hooks.debugger_config import Recording

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.config import Settings
    from msprobe_hooks.recording.session import Model, Session


class Probe(Recording, Protocol):
    """A task of a PrecisionDebugger that records no calls."""

    def monitor(self, model: Any, optimizer: Any = None) -> None:
        """Look at a model, or at an optimizer of MindSpore. Raises ConfigError for anything else."""

    def begin_at(self, step: int) -> None:
        """Set the number of the next step."""

    def close(self) -> str:
        """End, and return what was written."""


class Feeding(Protocol):
    """Replacement of modules' inputs while a PrecisionDebugger is on."""

    #: Whether what runs is recorded too.
    is_recorded: bool

    def start(self, model: Model | None) -> None:
        """Begin; ``model`` is what holds the modules, by default the one that is known."""

    def stop(self) -> None:
        """Pause."""

    def close(self) -> str:
        """End, and return what was fed."""


class Switch(Protocol):
    """A switch that turns a PrecisionDebugger on and off while the program runs."""

    #: Whether what lies between ``start`` and ``stop`` is recorded.
    is_on: bool

    def read_again(self) -> bool:
        """Look at it again, and return whether it has changed."""


#: The content of msprobe's ``config.json``, or the arguments of a PrecisionDebugger that win over it where they are not
#: None.
Keys: TypeAlias = Mapping[str, Any]

#: Opens a recording of another framework, or of a task or level that the core does not record.
OpenSession: TypeAlias = Callable[["Settings", "Model | None", "Framework"], "Session | None"]

#: Opens the recording of a task of a PrecisionDebugger that has settings of its own, from the task, ``config.json`` and
#: the arguments. Raises ConfigError for a wrong setting.
OpenTask: TypeAlias = Callable[["str | None", Keys, Keys, "Model | None", "Framework"], "Session | None"]

#: Opens a probe as `OpenTask` opens a recording.
OpenProbe: TypeAlias = Callable[["str | None", Keys, Keys, "Framework"], "Probe | None"]

#: Opens what the key ``load`` of ``config.json`` asks for, for a recording. Raises ConfigError for a wrong value.
OpenFeeding: TypeAlias = Callable[[Any, "Session", "Framework"], "Feeding | None"]

#: Opens the switch that a ``config.json`` has, from its path and content. Raises ConfigError for a wrong value.
OpenSwitch: TypeAlias = Callable[["str | Path | None", Keys], "Switch | None"]

#: Opens the dump that goes by a file that is no ``dump.json``. Raises DumpError where it cannot be used.
OpenDump: TypeAlias = Callable[[Path], "Dump | None"]
