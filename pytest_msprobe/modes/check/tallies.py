"""What was compiled, as the summary tells it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.engine.replay.trials.baseline_protocol import TENSORS_UNUSED
from pytest_msprobe.modes.check.compiled_result import compiled_of
from pytest_msprobe.results.perturbed import perturbed_of
from pytest_msprobe.results.repeats import Repeats, repeats_of
from pytest_msprobe.results.result import LITTLE_JUDGED, MATH_MODE


class CompiledTally:
    """Counts, for the summary, what was compiled and how long that took, and where Python ran in between."""

    def __init__(self) -> None:
        self._backend = ""
        self._compiled = 0
        self._seconds = 0.0
        self._breaks: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        compiled = compiled_of(extras)
        if compiled is not None:
            self._backend = compiled.backend
            self._compiled += compiled.seconds > 0
            self._seconds += compiled.seconds
            self._breaks.update(compiled.breaks)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._backend:
            return []
        whole = f"{self._compiled} compiled by {self._backend} in {self._seconds:.1f} s; calls of equal shapes share it"
        return [whole, *(f"  {count} with a graph break: {reason}" for reason, count in self._breaks.most_common())]


class LittleJudgedTally:
    """Counts, for the summary, the verdicts that say little, by reason."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if LITTLE_JUDGED in extras:
            self._reasons[extras[LITTLE_JUDGED]] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        return [f"passed with little judged {count}: {reason}" for reason, count in self._reasons.most_common()]


class MathModeTally:
    """Counts, for the summary, the verdicts in which math modes took part, by mode."""

    def __init__(self) -> None:
        self._modes: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if MATH_MODE in extras:
            self._modes[extras[MATH_MODE]] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        return [f"judged under {mode}, as the device says: {count}" for mode, count in self._modes.most_common()]


class UnusedTensorsTally:
    """Counts, for the summary, the records that were judged by numbers in place of tensors."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if TENSORS_UNUSED in extras:
            self._problems.append(extras[TENSORS_UNUSED])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._problems:
            return []
        others = " (and others)" if len(self._problems) > 1 else ""
        return [
            f"{len(self._problems)} judged by the baseline's numbers, not by its tensors: {self._problems[0]}{others}"
        ]


EXPLORED = "explored"

#: Under this name a result has on how many drawn inputs golden raised, or gave nothing to compare.
UNJUDGED = "unjudged_inputs"


class ExploredTally:
    """Counts explored inputs for the summary."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._unjudged = 0

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the inputs of one record."""
        if EXPLORED in extras:
            self._counts.append(extras[EXPLORED])
            self._unjudged += extras.get(UNJUDGED, 0)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._counts:
            return []
        none = self._counts.count(0)
        without = f"; {none} had none that could be judged" if none else ""
        without += f"; on {self._unjudged} more golden raised or gave nothing to compare" if self._unjudged else ""
        return [f"{sum(self._counts)} inputs explored around {len(self._counts)} records{without}"]


_SHOWN = 5


class PerturbedTally:
    """Counts, for the summary, what was perturbed, which APIs changed too much, and why others were not perturbed."""

    def __init__(self) -> None:
        self._perturbation = ""
        self._perturbed = 0
        self._inconsistent: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        perturbed = perturbed_of(extras)
        if perturbed is None:
            return
        self._perturbation = perturbed.perturbation
        if perturbed.left_out:
            self._left_out[perturbed.left_out] += 1
            return
        self._perturbed += 1
        self._inconsistent.update([perturbed.api] if perturbed.inconsistent else [])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._perturbation:
            return []
        changed = self._inconsistent.total()
        lines = [f"{self._perturbed} perturbed by {self._perturbation}, {changed} of them changed too much"]
        lines += [f"  {count} {api}" for api, count in self._inconsistent.most_common(_SHOWN)]
        hidden = len(self._inconsistent) - _SHOWN
        lines += [f"  and {hidden} more API{'s' * (hidden > 1)}"] if hidden > 0 else []
        return lines + [f"  {count} not perturbed: {reason}" for reason, count in self._left_out.most_common()]


class RepeatsTally:
    """Counts, for the summary, the records that were repeated, and lists the APIs that differ from themselves."""

    def __init__(self) -> None:
        self._times = 0
        self._repeated = 0
        self._left_out: Counter[str] = Counter()
        self._unstable: defaultdict[tuple[str, bool], list[Repeats]] = defaultdict(list)

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        repeats = repeats_of(extras)
        if repeats is None:
            return
        self._times = repeats.times
        if repeats.left_out:
            self._left_out[repeats.left_out] += 1
            return
        self._repeated += 1
        if repeats.unstable:
            self._unstable[repeats.api, repeats.is_known].append(repeats)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._times:
            return []
        differ = sum(map(len, self._unstable.values()))
        lines = [f"{self._repeated} run {self._times} times, {differ} of them nondeterministic"]
        lines += [f"  {_line(api, is_known, found)}" for (api, is_known), found in sorted(self._unstable.items())]
        return lines + [f"  {count} not repeated: {reason}" for reason, count in self._left_out.most_common()]


def _line(api: str, is_known: bool, found: list[Repeats]) -> str:
    outputs = [output for repeats in found for output in repeats.unstable]
    share, largest = max(output.share for output in outputs), max(output.largest for output in outputs)
    known = ", known to the policy" if is_known else ""
    return f"{len(found)} {api}: up to {100 * share:.3g} % of the elements, by at most {largest:.6g}{known}"
