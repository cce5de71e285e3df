"""Which calls are attention that can be screened head by head, with what is what among their arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.extensions.screening.matmul_structure import is_screenable_operand

_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")

# Fewer rows, columns or features, and the sample and the walk over all results cost what the exact check does.
_LEAST_LENGTH, _LEAST_WIDTH, _LEAST_GROUPS = 256, 32, 8

Place = tuple[slice, ...]
"""Which heads a group has: an index of a tensor's dimensions before length and width."""


@dataclass(frozen=True, slots=True)
class Attention:
    """A call that is softmax(``scale`` query keyᵀ + mask) value, head by head.

    ``query`` is (..., heads, rows, width), ``key`` (..., groups, keys, width), ``value`` (..., groups, keys, its own
    width), of one dtype; each group of so many heads shares keys and values. ``mask`` broadcasts to (..., heads, rows,
    keys): False, or what is added to the scores. ``paths`` are those of query, key and value.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    paths: tuple[str, str, str]
    mask: torch.Tensor | None
    is_causal: bool
    scale: float

    @property
    def operands(self) -> dict[str, tuple[str, torch.Tensor]]:
        """Path and values of ``query``, ``key`` and ``value``."""
        tensors = zip(self.paths, (self.query, self.key, self.value), strict=True)
        return dict(zip(("query", "key", "value"), tensors, strict=True))

    def name_of(self, path: str) -> str:
        """Return which operand a gradient's path in a verdict is of, ``output`` for any other path."""
        found = (name for name, (argument, _) in self.operands.items() if path == f"grad.{argument}")
        return next(found, "output")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (*self.query.shape[:-1], self.value.shape[-1])

    @property
    def operations(self) -> int:
        """How many multiplications and additions the two products of the result take."""
        rows, keys = self.query.shape[-2], self.key.shape[-2]
        pairs = rows * keys if not self.is_causal else sum(min(row + 1, keys) for row in range(rows))
        return 2 * math.prod(self.query.shape[:-2]) * pairs * (self.query.shape[-1] + self.value.shape[-1])

    def groups(self) -> Iterator[Place]:
        """Yield the place of each group of heads that share keys and values, in the order of the keys."""
        for at in product(*map(range, self.key.shape[:-2])):
            yield tuple(slice(i, i + 1) for i in at)

    def heads(self, tensor: torch.Tensor, place: Place) -> torch.Tensor:
        """Return what a group has of a tensor whose last two dimensions are those of a head: (heads, ..., ...)."""
        return self.cut(tensor, place).flatten(0, -3)

    def masks(self, place: Place) -> torch.Tensor | None:
        """Return the masks of a group's heads, (heads, rows, keys); None where there is no mask."""
        if self.mask is None:
            return None
        return self.heads(self.mask.expand(*self.query.shape[:-1], self.key.shape[-2]), place)

    def part(self, arguments: Arguments, place: Place) -> Arguments:
        """Return the arguments of a call that computes one group alone."""

        def of_group(value: Any) -> Any:
            return self.cut(value, place) if isinstance(value, torch.Tensor) else value

        kwargs = {name: of_group(value) for name, value in arguments.kwargs.items()}
        return replace(arguments, args=tuple(map(of_group, arguments.args)), kwargs=kwargs)

    def cut(self, tensor: torch.Tensor, place: Place) -> torch.Tensor:
        """Return what a group has of a tensor, with as many dimensions; what broadcasts to all groups is theirs."""
        leading = tensor.shape[:-2]
        groups = zip(place[len(place) - len(leading) :], self.key.shape[len(place) - len(leading) : -2], strict=True)
        return tensor[
            tuple(
                slice(None) if size == 1 else slice(at.start * size // count, at.stop * size // count)
                for size, (at, count) in zip(leading, groups, strict=True)
            )
        ]


def attention_of(operation: str, arguments: Arguments) -> Attention | None:
    """Return what attention a call is; None for any other, and for one that is left to the exact check.

    Query, key and value are dense, without overlap, of one float dtype, and large enough for a screen to be worth it.
    """
    if operation != "scaled_dot_product_attention":
        return None
    given = _by_name(arguments)
    if given is None or not all(is_screenable_operand(given[name][1]) for name in _PARAMETERS[:3] if name in given):
        return None
    paths, (query, key, value) = zip(*(given[name] for name in _PARAMETERS[:3]), strict=True)
    mask, causal, scale = (given[name][1] if name in given else None for name in ("attn_mask", "is_causal", "scale"))
    if given.get("dropout_p", ("", 0.0))[1] or (mask is not None and causal):
        return None
    # With a negative scale torch's CPU kernels give NaN for a causal mask.
    if scale is not None and not (type(scale) in (int, float) and 0 < scale < math.inf):
        return None
    if not _fit(query, key, value, shares=bool(given.get("enable_gqa", ("", False))[1])):
        return None
    found = Attention(query, key, value, paths, mask, bool(causal), scale or query.shape[-1] ** -0.5)
    return found if (mask is None or _masks(mask, found)) and _is_large(found) else None


def _by_name(arguments: Arguments) -> Mapping[str, tuple[str, Any]] | None:
    """Return path and value of each argument by its parameter's name; None where the call is not of this form."""
    args, kwargs = arguments.args, arguments.kwargs
    if len(args) > len(_PARAMETERS) or kwargs.keys() - {*_PARAMETERS[len(args) :]}:
        return None
    found = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(_PARAMETERS, args, strict=False))}
    found |= {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}
    return found if found.keys() >= {*_PARAMETERS[:3]} else None


def _fit(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, shares: bool) -> bool:
    """Return whether three tensors are those of attention whose heads have one key, or with ``shares`` share them."""
    if not query.dtype == key.dtype == value.dtype or not query.dim() == key.dim() == value.dim() >= 3:
        return False
    if key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1]:
        return False
    if not shares:
        return query.shape[:-2] == key.shape[:-2]
    return query.dim() > 3 and query.shape[:-3] == key.shape[:-3] and query.shape[-3] % key.shape[-3] == 0


def _masks(mask: Any, attention: Attention) -> bool:
    """Return whether something is a mask that broadcasts to the scores."""
    if not isinstance(mask, torch.Tensor) or mask.layout is not torch.strided or mask.dim() < 2:
        return False
    scores = (*attention.query.shape[:-1], attention.key.shape[-2])
    sizes = zip(reversed(mask.shape), reversed(scores), strict=False)
    fits = mask.dim() <= len(scores) and all(size in (1, whole) for size, whole in sizes)
    return fits and mask.dtype in (torch.bool, attention.query.dtype)


def _is_large(attention: Attention) -> bool:
    lengths, widths = zip(*(each.shape[-2:] for each in (attention.query, attention.key, attention.value)), strict=True)
    groups = math.prod(attention.key.shape[:-2])
    return min(lengths) >= _LEAST_LENGTH and min(widths) >= _LEAST_WIDTH and groups >= _LEAST_GROUPS
