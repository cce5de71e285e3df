"""Operators of an NPU that choose among places at random: of true elements, and of boxes to train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.properties import (
    REQUIRED,
    Form,
    Parameters,
    PassesNoGradient,
    RandomProperty,
    bound,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict

_POSITIVE, _NEGATIVE, _IGNORED = 1, 0, -1
# a product of whole numbers and a fraction that rounding left below a whole number
_ROUNDED = 1e-6


@dataclass(frozen=True, slots=True)
class ChoiceProperty(PassesNoGradient):
    """``count`` places of true elements of ``x``, each at most once, and a mask of how many there are; 0 are all."""

    x: Tensor
    count: int

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, number, that the places are true ones and differ, and the share of them from the first half."""
        true = self.x.bool().flatten().nonzero().flatten()
        count = self.count or len(true)
        malformed = Form((count, self.x.dim()), torch.int32).check(output)
        malformed = malformed or Form((count,), torch.bool).check(tensors(output)[1:])
        if malformed:
            return malformed
        places, mask = tensors(output)
        chosen = places[mask].long()
        if len(chosen) != min(count, len(true)):
            return tail_bound.broken(f"{len(chosen)} places are chosen of {len(true)}", chosen=float(len(chosen)))
        sizes = torch.tensor(self.x.shape)
        outside = int(((chosen < 0) | (chosen >= sizes)).sum())
        if outside:
            return tail_bound.broken(f"{outside} places are outside of the input", outside=outside)
        strides = torch.tensor([self.x.shape[dim + 1 :].numel() for dim in range(self.x.dim())])
        flat = (chosen * strides).sum(-1)
        untrue = int((~self.x.bool().flatten()[flat]).sum())
        if untrue:
            return tail_bound.broken(f"{untrue} chosen elements are not true", untrue=untrue)
        repeated = len(flat) - len(set(flat.tolist()))
        if repeated:
            return tail_bound.broken(f"{repeated} places are chosen again", repeated=repeated)
        if not len(flat):
            return tail_bound.held("nothing to choose")
        # draws without replacement stray less than independent ones (Hoeffding, 1963)
        half = len(true) // 2
        first = int((flat < true[half]).sum())
        return tail_bound.share("share of the first half", (first, first), len(flat), half / len(true))


@dataclass(frozen=True, slots=True)
class SubsampleProperty(PassesNoGradient):
    """``labels`` (1, 0 and -1), of which all but ``per_images`` ones and zeros become -1, by the share of ones."""

    labels: Tensor
    per_images: int
    positive_fraction: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge that labels are kept or ignored, and how many ones and zeros are left."""
        malformed = Form(tuple(self.labels.shape), self.labels.dtype).check(output)
        if malformed:
            return malformed
        left = tensors(output)[0]
        changed = int(((left != self.labels) & (left != _IGNORED)).sum())
        if changed:
            return tail_bound.broken(f"{changed} labels are neither kept nor ignored", changed=changed)
        most = int(self.per_images * self.positive_fraction + _ROUNDED)
        ones = min(most, int((self.labels == _POSITIVE).sum()))
        zeros = min(self.per_images - ones, int((self.labels == _NEGATIVE).sum()))
        found = {label: int((left == label).sum()) for label in (_POSITIVE, _NEGATIVE)}
        for label, wanted in ((_POSITIVE, ones), (_NEGATIVE, zeros)):
            if found[label] != wanted:
                return tail_bound.broken(f"{found[label]} labels are {label}, but {wanted} must be", found=found[label])
        return tail_bound.held("as many labels of each kind as there must be")


_CHOICE: Parameters = (("x", REQUIRED), ("count", 256))
_SUBSAMPLE: Parameters = (("input", REQUIRED), ("per_images", REQUIRED), ("positive_fraction", REQUIRED))


def random_choice(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_random_choice_with_mask``."""
    given = bound(api, _CHOICE, args, kwargs)
    return ChoiceProperty(given["x"], int(given["count"]))


def subsample(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_sub_sample``."""
    given = bound(api, _SUBSAMPLE, args, kwargs)
    return SubsampleProperty(given["input"], int(given["per_images"]), float(given["positive_fraction"]))
