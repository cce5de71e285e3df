"""Sketches of attention and its gradients: sums over a few columns, without computing them; calls that have them.

For weights X of either sign over the columns of a result O = P V, P the softmax of the scores, O X = P (V X). So it is
with the gradients that come of an arriving dO, with S the scores: dV X = Pᵀ (dO X), dQ X = dS (K X), dK X = dSᵀ (Q X),
where dS = P (dO Vᵀ - rows' sums of P dO Vᵀ). Two products of full width are left, Q Kᵀ and dO Vᵀ, of seven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from pytest_msprobe.devices.math_modes import full_precision
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.extensions.screening.convolution import is_screenable_operand
from pytest_msprobe.extensions.screening.tile_sums import drawn_weights

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
        """Return how many multiplications and additions the two products of the result take."""
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


#: Neighbouring columns that share one sum, at most; in each row so many sums at least, all of which hide what is wrong
#: by chance alone.
COLUMNS, _SUMS = 16, 4

# So many rows of scores over 4096 keys stay in the processor's cache.
_ROWS = 128


@dataclass(frozen=True, slots=True)
class Sum:
    """Sums over a tensor of a group, ``value`` (heads, tiles, rows); a group has one head of keys and values.

    ``shared``, of the same shape or 0, is what an error that a row's columns share adds to the variance of ``value``,
    as a multiple of the square of a unit roundoff.
    """

    value: torch.Tensor
    shared: torch.Tensor


Sums = dict[str, Sum]
"""The sums of ``output`` and, where a gradient arrives, of the gradients of ``query``, ``key`` and ``value``."""


@dataclass(frozen=True, slots=True)
class Came:
    """The gradient that arrives for a whole result, and the result that the device gave, both of the result's shape."""

    gradient: torch.Tensor
    output: torch.Tensor


@dataclass(frozen=True, slots=True)
class Sketches:
    """Weights of the columns of a group's tensors, each in the row of its column and the column of its tile.

    ``width`` is (width, tiles) for queries and keys, ``value_width`` the same for values and results.
    """

    width: torch.Tensor
    value_width: torch.Tensor

    def of(self, name: str) -> torch.Tensor:
        """Return those of one of the tensors of `Sums`."""
        return self.width if name in ("query", "key") else self.value_width


def drawn_sketches(attention: Attention, generator: torch.Generator) -> Sketches:
    """Return weights for one group."""
    wide = wide_dtype(attention.query.dtype)
    return Sketches(*(_sketch(each.shape[-1], generator).to(wide) for each in (attention.query, attention.value)))


def columns_of(width: int) -> int:
    """Return how many neighbouring columns of a tensor of this width share one sum."""
    return min(COLUMNS, -(-width // _SUMS))


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which sums are taken for results of this one: that of golden."""
    return torch.float64 if dtype.itemsize > 2 else torch.float32


@full_precision()
def summed(attention: Attention, place: Place, sketches: Sketches, came: Came | None) -> Sums:
    """Return the sums of one group, those of the gradients as well where a gradient ``came``.

    Memory: the group's tensors widened, and three blocks of `_ROWS` rows of scores.
    """
    wide = sketches.width.dtype
    queries, masks = attention.heads(attention.query, place), attention.masks(place)
    key, value = (attention.heads(each, place)[0].to(wide) for each in (attention.key, attention.value))
    values = sketches.value_width.mT @ value.mT
    output = values.new_empty(len(queries), len(values), queries.shape[1])
    gradients = None if came is None else _Gradients(attention, place, sketches, came, key, value)
    for head, rows, seen in _blocks(attention, queries):
        query = queries[head, rows].to(wide) * attention.scale
        weights = _weights(query, key[:seen], None if masks is None else masks[head, rows], rows, attention)
        # This way round a few rows against a block of many take a sixth of the time that a few columns take.
        output[head, :, rows] = values[:, :seen] @ weights.mT
        if gradients is not None:
            gradients.take(head, rows, query, weights)
    return {"output": Sum(output, output.new_zeros(()))} | ({} if gradients is None else gradients.sums)


class _Gradients:
    """The sums of a group's gradients, taken in block by block of the rows of its heads.

    Rows' sums of P dO Vᵀ are those of dO O, and devices take them from their own, rounded O. This error of a row is in
    all of its dS, by their weights, so that the columns of dQ and dK share it.
    """

    def __init__(
        self, attention: Attention, place: Place, sketches: Sketches, came: Came, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        self._scale, self._sketches, self._value = attention.scale, sketches, value
        self._arriving, self._outputs = attention.heads(came.gradient, place), attention.heads(came.output, place)
        # A mean of values is none greater than they are, however wrong the device's is.
        self._greatest = value.abs().amax(0)
        self._keys = sketches.width.mT @ key.mT
        rows = key.new_zeros(len(self._arriving), len(self._keys), self._arriving.shape[1])
        keys = torch.zeros_like(self._keys)[None]
        self._query, self._key = Sum(rows, rows.clone()), Sum(keys, keys.clone())
        values = key.new_zeros(1, sketches.value_width.shape[1], len(value))
        self._of_value = Sum(values, values.new_zeros(()))

    def take(self, head: int, rows: slice, query: torch.Tensor, weights: torch.Tensor) -> None:
        """Take in some rows of a head: their scaled queries, and their ``weights``, which are used up."""
        seen = weights.shape[1]
        gradient = self._arriving[head, rows].to(weights.dtype)
        rounded = self._outputs[head, rows].to(weights.dtype).abs().minimum(self._greatest)
        variance = gradient.square().mul_(rounded.square_()).sum(1)
        keys, queries = self._keys[:, :seen], self._sketches.width.mT @ query.mT
        self._of_value.value[0, :, :seen] += (self._sketches.value_width.mT @ gradient.mT) @ weights
        changes = torch.mm(gradient, self._value[:seen].mT).mul_(weights)
        changes.addcmul_(weights, changes.sum(1, keepdim=True), value=-1)
        self._query.value[head, :, rows] = keys @ changes.mT * self._scale
        self._key.value[0, :, :seen] += queries @ changes
        self._query.shared[head, :, rows] = (keys @ weights.mT * self._scale).square_() * variance
        self._key.shared[0, :, :seen] += (queries.square() * variance) @ weights.square_()

    @property
    def sums(self) -> Sums:
        """Return what was taken in."""
        return {"query": self._query, "key": self._key, "value": self._of_value}


def _blocks(attention: Attention, queries: torch.Tensor) -> list[tuple[int, slice, int]]:
    """Return head and rows of each block, and how many keys its rows see at most."""
    (heads, length, _), keys = queries.shape, attention.key.shape[-2]
    starts = range(0, length, _ROWS)
    blocks = [slice(start, min(start + _ROWS, length)) for start in starts]
    return [
        (head, rows, min(rows.stop, keys) if attention.is_causal else keys) for head in range(heads) for rows in blocks
    ]


def _weights(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, rows: slice, attention: Attention
) -> torch.Tensor:
    """Return the softmax of the scores of some rows."""
    scores = torch.mm(query, key.mT)
    if attention.is_causal and rows.start < len(key):
        hidden = torch.arange(rows.start, len(key)) > torch.arange(rows.start, rows.stop)[:, None]
        scores[:, rows.start :].masked_fill_(hidden, -torch.inf)
    elif mask is not None and mask.dtype == torch.bool:
        scores.masked_fill_(~mask, -torch.inf)
    elif mask is not None:
        scores += mask
    return torch.softmax(scores, 1)


def _sketch(width: int, generator: torch.Generator) -> torch.Tensor:
    tiles = torch.arange(width) // columns_of(width)
    weights = drawn_weights(width, generator, columns_of(width)).float()
    return torch.zeros(width, int(tiles[-1]) + 1).index_put_((torch.arange(width), tiles), weights)
