"""How a wrong tensor differs from golden, in the words and the order of ``torch.testing``."""

from __future__ import annotations

import torch

from msprobe_standards.tensor_layouts import is_plain


def describe_difference(target: torch.Tensor, golden: torch.Tensor) -> str:
    """Return how many elements differ, and the greatest absolute and relative difference with index and values.

    Both are CPU tensors; elements differ where they are unequal once golden is rounded to the dtype of the target.
    Returns an empty text where the shapes differ or nothing can be compared.
    """
    if not (is_plain(target) and is_plain(golden)):
        return ""
    if target.shape != golden.shape or target.numel() == 0:
        return ""
    wide = torch.complex128 if target.is_complex() or golden.is_complex() else torch.float64
    found, wanted = target.detach().to(wide), golden.detach().to(target.dtype).to(wide)
    equal = (found == wanted) | (found.isnan() & wanted.isnan())
    count = int((~equal).sum())
    absolute = (found - wanted).abs()
    absolute[equal] = 0.0
    relative = absolute / wanted.abs()
    relative[equal] = 0.0
    lines = [f"Unequal elements: {count} / {equal.numel()} ({100 * count / equal.numel():.3g} %)"]
    for kind, difference in (("absolute", absolute), ("relative", relative)):
        # NaN is the greatest difference there is; argmax finds it first.
        place = int(difference.argmax())
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), difference.shape))
        lines.append(
            f"Greatest {kind} difference: {difference.flatten()[place].item():.6g} at index {index}: "
            f"{_shown(target, index)} where golden is {_shown(golden, index)}"
        )
    return "\n".join(lines)


def _shown(tensor: torch.Tensor, index: tuple[int, ...]) -> str:
    value = tensor[index].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)
