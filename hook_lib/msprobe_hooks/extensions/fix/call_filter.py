"""Selection of the calls that are fixed, the outcome, and a cache of results for calls that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from msprobe_hooks.dump.names import split_direction
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.messages import did_you_mean, listed
from msprobe_hooks.recording.upcasts import PRECISIONS as PRECISIONS
from msprobe_hooks.recording.upcasts import NothingToRaiseError, UnraisedError
from msprobe_hooks.recording.upcasts import Precision as Precision

#: Why a call is left as it is that would draw other numbers in another dtype or on another device.
DRAWS: Final = "it draws random numbers"


_CASTS = frozenset(
    {f"Tensor.{name}" for name in "to type type_as half bfloat16 float double chalf cfloat cdouble astype".split()}
    | {"Functional.cast"}
)


def require_computation(qualified: str) -> None:
    """Raise NothingToRaiseError for a cast: its result has the dtype that it names, in whatever precision it runs."""
    if qualified in _CASTS:
        raise NothingToRaiseError("it only casts or moves its argument")


_LIBRARY = "torch.ops."

#: Why an operator of a library is left as it is that could be raised.
UNNAMED_LIBRARY: Final = "custom_op_namespaces does not name its library"


def library_of(qualified: str) -> str | None:
    """Return the library whose operator this is, ``torchvision`` of ``torch.ops.torchvision.nms``; None for others."""
    return qualified.split(".")[2] if qualified.startswith(_LIBRARY) else None


def not_looked_at(error: Exception) -> str:
    """Return the reason for which a call runs as it is where something unforeseen was raised before it."""
    return f"observing it raised {type(error).__name__}"


class Names:
    """The calls that a user named: ``Torch.matmul``, ``Torch.matmul.3``, as a record is called too, ``*`` for anything.

    ``namespaces`` are the libraries whose operators are raised as well. Raises ConfigError where there is no name, or
    one is empty or no text.
    """

    def __init__(self, names: Sequence[str], namespaces: Sequence[str] = ()) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigError("names", names, "a list of names of APIs or calls, such as Torch.matmul.3")
        self._patterns = {name: split_direction(name)[0] for name in names}
        self._unmet = set(names)
        #: The APIs of which calls were seen while names were unmet.
        self.seen: set[str] = set()
        self._namespaces = dict.fromkeys(namespaces)
        self._unmet_namespaces = set(namespaces)

    def admit(self, qualified: str, number: int) -> bool:
        """Return whether a call is named, and remember which names were met."""
        call = f"{qualified}.{number}"
        met = [
            name
            for name, pattern in self._patterns.items()
            if fnmatchcase(call, pattern) or fnmatchcase(qualified, pattern)
        ]
        self._unmet.difference_update(met)
        if self._unmet:
            self.seen.add(qualified)
        if self._unmet_namespaces:
            self._unmet_namespaces.discard(library_of(qualified) or "")
        return bool(met)

    @property
    def namespaces(self) -> set[str]:
        """The libraries whose operators are raised: those given, and ``torchvision`` of ``torch.ops.torchvision.*``."""
        named = {library for name in self._patterns if (library := library_of(name)) is not None}
        return named.union(self._namespaces)

    @property
    def unmet(self) -> list[str]:
        """The names of which no call was seen, as they were given, and ``torch.ops.mylib.*`` for a library."""
        unmet = [name for name in self._patterns if name in self._unmet]
        return unmet + [f"{_LIBRARY}{name}.*" for name in self._namespaces if name in self._unmet_namespaces]


@dataclass(slots=True)
class Fixed:
    """Outcome of fixing, counted by API: calls ``raised``, and calls that ran as they were, with the reason.

    ``unmet`` are the names of which no call was seen, ``seen`` the APIs that were; both are known at the end.
    """

    raised: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    unmet: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set, repr=False)

    def make(self, qualified: str, raised: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """Make a call of this API raised, or where that raises UnraisedError as it is, and count it."""
        try:
            result = raised()
        except UnraisedError as reason:
            self.leave(qualified, reason)
        else:
            self.raised[qualified] += 1
            return result
        # Not where the reason is handled: it would be the context of what the program raises.
        return plain()

    def leave(self, qualified: str, reason: UnraisedError) -> None:
        """Count a call of this API that runs as it is."""
        self.left[qualified, str(reason)] += 1

    def __str__(self) -> str:
        lines = [f"raised {_counted(self.raised)}" if self.raised else "no call was raised"]
        for reason in dict.fromkeys(reason for _, reason in self.left):
            left = Counter({name: count for (name, why), count in self.left.items() if why == reason})
            lines.append(f"not raised, because {reason}: {_counted(left)}")
        lines += [f"{name} was never called{did_you_mean(name, self.seen)}" for name in self.unmet]
        return "; ".join(lines)


_SHOWN = 10


def _counted(calls: Counter[str]) -> str:
    return listed((f"{name} ({count})" for name, count in calls.most_common()), _SHOWN)
