"""What was measured of tensors, remembered while they do not change, which their version counters say."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from msprobe_hooks.recording.statistics import Statistics
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import is_readable
from msprobe_hooks.torch.strides import strides

# Tensors that are remembered before the dead are dropped. A choice: more would hold memory, fewer would measure
# parameters again.
_REMEMBERED = 1 << 14

# To measure fewer elements takes no longer than to find where they are.
_LEAST_VIEWED = 1 << 10

#: Where the elements of a tensor lie in memory that it shares with others, and as what they are read.
_Place: TypeAlias = tuple[Any, ...]


class StatisticsCache:
    """Remembers what was measured of a tensor, for as long as that tensor exists unchanged.

    A tensor is unchanged while it is the same object with the same version counter. Memory that was handed out past the
    counter (``x.data``, ``x.numpy()``, ``x.data_ptr()``) is measured each time from then on. Writes that leave the
    counter must be reported: running statistics of normalisation (``discard``), collectives, fused optimizers and the
    gradient buckets of data parallelism (``forget``).

    On a CPU a view is not measured where its base, or another view, of the same elements was: they share one counter.
    ``is_ordered`` says that a measure depends on the order of elements, as a checksum does.
    """

    def __init__(self, measure: Callable[[Tensor], Statistics], *, is_ordered: bool = False) -> None:
        self._measure = measure
        self._is_ordered = is_ordered
        self._known: dict[int, tuple[weakref.ref[Tensor], int, Statistics]] = {}
        # Of views, by the ids of their bases.
        self._views: dict[int, tuple[weakref.ref[Tensor], dict[_Place, tuple[int, Statistics]]]] = {}
        self._exposed: dict[int, weakref.ref[Tensor]] = {}
        #: Whether something that was measured held inf or nan; who looks sets it back.
        self.has_met_non_finite = False

    def __call__(self, tensor: Tensor) -> Statistics:
        """Return the statistics of a tensor, measuring it only where they are not known."""
        key = id(tensor)
        known = self._known.get(key)
        if known is not None and known[0]() is tensor and known[1] == tensor._version:
            return known[2]
        base = tensor._base
        if tensor.is_inference() or key in self._exposed or id(base) in self._exposed:
            return self._measure(tensor)
        result = self._measure(tensor) if base is None else self._measure_view(tensor, base)
        if not result.is_finite and _is_non_finite(result):
            self.has_met_non_finite = True
        if len(self._known) >= _REMEMBERED:
            self._drop_the_dead()
        self._known[key] = (weakref.ref(tensor), tensor._version, result)
        return result

    def known(self, tensor: Tensor) -> Statistics | None:
        """Return what was measured of a tensor that has not changed since, None where that is not known."""
        known = self._known.get(id(tensor))
        return known[2] if known is not None and known[0]() is tensor and known[1] == tensor._version else None

    def is_stale(self, tensor: Tensor) -> bool:
        """Return whether a tensor holds inf or nan that it did not hold when it was measured, and forget it then.

        Its memory was overwritten since without its version counter moving.
        """
        known = self.known(tensor)
        if known is None or known.is_waiting or _is_non_finite(known) or not _is_non_finite(self._measure(tensor)):
            return False
        self.discard(tensor)
        return True

    def expose(self, tensor: Tensor) -> None:
        """Note that a tensor's memory may from now on change without its version counter moving."""
        self.discard(tensor)
        for one in (tensor, _base(tensor)):
            if one is not None:
                self._exposed[id(one)] = weakref.ref(one, partial(self._end_exposure, id(one)))

    def discard(self, tensor: Tensor) -> None:
        """Measure a tensor anew next time."""
        for key in (id(tensor), id(_base(tensor))):
            self._known.pop(key, None)
            self._views.pop(key, None)

    def forget(self) -> None:
        """Measure everything anew, as after a step."""
        self._known.clear()
        self._views.clear()

    def _measure_view(self, tensor: Tensor, base: Tensor) -> Statistics:
        if not tensor.is_cpu or tensor.numel() < _LEAST_VIEWED or not is_readable(tensor):
            return self._measure(tensor)
        views = self._views.get(id(base))
        if views is None or views[0]() is not base:
            views = self._views[id(base)] = (weakref.ref(base), {})
        place = self._place(tensor)
        version, known = views[1].get(place, (None, None))
        if version != tensor._version:
            known = self.known(base)
            if known is None or self._place(base) != place:
                known = None
        if known is not None:
            # The entry of a record says the shape as well.
            result = copy(known)
            result.entry = None
            return result
        result = self._measure(tensor)
        views[1][place] = (tensor._version, result)
        return result

    def _place(self, tensor: Tensor) -> _Place:
        read_as = (tensor.dtype, tensor.storage_offset(), tensor.is_neg(), tensor.is_conj())
        return (*read_as, *strides(tensor, is_ordered=self._is_ordered))

    def _end_exposure(self, key: int, _: object) -> None:
        self._exposed.pop(key, None)

    def _drop_the_dead(self) -> None:
        self._views = {key: views for key, views in list(self._views.items()) if views[0]() is not None}
        self._known = {key: known for key, known in list(self._known.items()) if known[0]() is not None}
        if len(self._known) >= _REMEMBERED // 2:
            self.forget()


def _is_non_finite(statistics: Statistics) -> bool:
    """Return whether the extrema are known, and one of them is inf or nan."""
    return any(isinstance(one, float) and one - one != 0 for one in (statistics.max, statistics.min))


def _base(tensor: Tensor) -> Tensor | None:
    """Return what a tensor is a view of, without asking a subclass."""
    with NoDispatch():
        return tensor._base


def version_of(tensor: Tensor) -> int:
    """Return the version counter, which each change of the values moves; -1 in inference mode, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return -1
