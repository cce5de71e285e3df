"""Golden parameters of one shape, to one of which a target's may be equal under another name: weights were swapped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from pytest_msprobe.errors import UserError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import MatrixDigest, Parameter

#: Returns other golden parameters of a shape: the name of each, itself, and its digests.
Others: TypeAlias = Callable[[], Iterable[tuple[str, Parameter, MatrixDigest]]]


class SameShape:
    """The golden parameters by shape. The digests of each are read once, when they are first asked for."""

    def __init__(self, golden: Mapping[str, Parameter]) -> None:
        self._golden = golden
        self._names: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, parameter in golden.items():
            if not parameter.fault:
                self._names[tuple(parameter.shape)].append(name)
        self._digests: dict[str, MatrixDigest | None] = {}

    def others(self, name: str) -> Iterator[tuple[str, Parameter, MatrixDigest]]:
        """Yield the other golden parameters of the shape of the one of this name; those that cannot be read are not."""
        own = self._golden.get(name)
        for other in self._names[tuple(own.shape)] if own is not None else ():
            digest = None if other == name else self._digest(other)
            if digest is not None:
                yield other, self._golden[other], digest

    def _digest(self, name: str) -> MatrixDigest | None:
        if name not in self._digests:
            try:
                self._digests[name] = self._golden[name].digest()
            except (UserError, RuntimeError, TypeError, ValueError):
                # Such as a sparse one, which has no rows.
                self._digests[name] = None
        return self._digests[name]
