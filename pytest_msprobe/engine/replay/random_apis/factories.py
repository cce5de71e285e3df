"""Factories and in-place APIs that draw every element from one known distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import distributions, tail_bound
from pytest_msprobe.engine.replay.random_apis.independence import Choices, judged
from pytest_msprobe.engine.replay.random_apis.random_property import (
    REQUIRED,
    Form,
    Parameters,
    PassesNoGradient,
    RandomProperty,
    bound,
    sizes,
    tensors,
)
from pytest_msprobe.engine.replay.random_apis.samples import (
    against,
    halves,
    most_equal,
    normal_moments,
    rounding,
    sample,
    sample_exponent,
    uniform_moments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict
    from pytest_msprobe.engine.replay.random_apis.distributions import Distribution


@dataclass(frozen=True, slots=True)
class SampleProperty(PassesNoGradient):
    """All elements are drawn from ``distribution``."""

    form: Form
    distribution: Distribution

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, range, shares, moments where these are known, and repetitions."""
        malformed = self.form.check(output)
        if malformed:
            return malformed
        y = _real(tensors(output)[0])
        return tail_bound.decided([*against(y, self.distribution), *sample(y, self.distribution), *self._moments(y)])

    def _moments(self, y: Tensor) -> Sequence[Verdict]:
        return ()

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return what each value shows of the numbers that it was made of."""
        y = _real(tensors(output)[0])
        return halves(y, self.distribution, rounding(y.dtype))

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        y = _real(tensors(output)[0])
        return sample_exponent(y, self.distribution, rounding(y.dtype))


@dataclass(frozen=True, slots=True)
class UniformProperty(SampleProperty):
    """All elements are uniform, so that their mean and variance are judged as well."""

    def _moments(self, y: Tensor) -> Sequence[Verdict]:
        low, high = self.distribution.lowest, self.distribution.highest
        width = high - low
        if not width:
            return ()
        eps = rounding(y.dtype)
        offset = eps * max(abs(low), abs(high)) / width
        return uniform_moments((y.double() - low) / width, eps, offset)


@dataclass(frozen=True, slots=True)
class NormalProperty(PassesNoGradient):
    """Elements are normal, each with its own ``mean`` and ``std`` where these are tensors."""

    form: Form
    mean: Tensor
    std: Tensor

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, and shares, mean, variance and repetitions of what is left when mean and std are taken out."""
        malformed = self.form.check(output)
        if malformed:
            return malformed
        y = tensors(output)[0]
        eps, values = rounding(_real(y).dtype), _real(y).double()
        mean, std = self._parameters(y)
        moved = int(((std == 0) & ((values - mean).abs() > eps * mean.abs())).sum())
        if moved:
            return tail_bound.broken(f"{moved} elements of standard deviation 0 are not at their mean", moved=moved)
        z, offsets = self._standardized(y)
        standard = distributions.normal(0.0, 1.0)
        verdicts = against(z, standard, eps=eps, spread=offsets)
        if not verdicts or verdicts[0].outcome != "fail":
            verdicts += normal_moments(z, eps, float(offsets.max()) if offsets.numel() else 0.0)
            # Where all have one mean and std, what repeats are the values themselves.
            if self.mean.numel() > 1 or self.std.numel() > 1 or self.mean.is_complex():
                verdicts += [verdict for drawn in self.choices(output) for verdict in judged(drawn)]
            else:
                std_of_parts = float(self.std) / (math.sqrt(2) if y.is_complex() else 1)
                verdicts += sample(_real(y), distributions.normal(float(self.mean), std_of_parts))
        return tail_bound.decided(verdicts)

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return what each value shows of the number that it was made of."""
        y = tensors(output)[0]
        z, offsets = self._standardized(y)
        moved = float(offsets.max()) if offsets.numel() else 0.0
        return halves(z, distributions.normal(0.0, 1.0), rounding(_real(y).dtype), moved)

    def _standardized(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return drawn values without mean and std, in their shape if all are drawn, and how far each was rounded."""
        values = _real(y).double()
        mean, std = self._parameters(y)
        drawn: Any = std != 0
        if drawn.all():
            drawn = ...
        offsets = rounding(_real(y).dtype) * (values.abs() + mean.abs())[drawn] / std[drawn]
        return ((values - mean) / std)[drawn], offsets

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        y = tensors(output)[0]
        chance = most_equal(distributions.normal(0.0, 1.0), rounding(_real(y).dtype)) + self._standardized(y)[1]
        return float(-chance.clamp(max=1.0).log().sum())

    def _parameters(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std of each element of ``y``, or of each part of a complex one, which share its variance."""
        if not y.is_complex():
            return self.mean.broadcast_to(y.shape), self.std.broadcast_to(y.shape)
        # Both parts have a real mean; of a complex one each has its own.
        mean = self.mean if self.mean.is_complex() else torch.complex(self.mean, self.mean)
        std = (self.std / math.sqrt(2)).broadcast_to(y.shape)
        return torch.view_as_real(mean.broadcast_to(y.shape)), torch.stack((std, std), -1)


def _real(y: Tensor) -> Tensor:
    return torch.view_as_real(y.resolve_conj()) if y.is_complex() else y


def _place(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the tensor whose place or form the result takes."""
    first = args[0] if args else kwargs.get("self", kwargs.get("input"))
    return first if isinstance(first, torch.Tensor) else None


def _form(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Form:
    dtype = kwargs.get("dtype")
    place = _place(args, kwargs)
    if place is not None:
        return Form(tuple(place.shape), dtype or place.dtype)
    return Form(sizes(args, kwargs), dtype)


def rand(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``rand`` and ``rand_like``."""
    return UniformProperty(_form(args, kwargs), distributions.uniform(0.0, 1.0))


def randn(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``randn`` and ``randn_like``."""
    return _normal(_form(args, kwargs), 0.0, 1.0)


_UNIFORM: Parameters = (("input", REQUIRED), ("low", 0.0), ("high", 1.0))
_NORMAL_IN_PLACE: Parameters = (("input", REQUIRED), ("mean", 0.0), ("std", 1.0))
_NORMAL: Parameters = (("mean", 0.0), ("std", 1.0), ("size", None))


def uniform(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``uniform_``."""
    given = bound(api, _UNIFORM, args, kwargs)
    return UniformProperty(_form(args, kwargs), distributions.uniform(float(given["low"]), float(given["high"])))


def normal_in_place(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Build the property of ``normal_``."""
    given = bound(api, _NORMAL_IN_PLACE, args, kwargs)
    return _normal(_form(args, kwargs), given["mean"], given["std"])


def normal(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Build the property of ``normal``, given numbers and a size or tensors."""
    given = bound(api, _NORMAL, args, kwargs)
    mean, std, size = given["mean"], given["std"], given["size"]
    if size is not None:
        return _normal(Form(tuple(size), kwargs.get("dtype")), mean, std)
    return _normal(Form(tuple((torch.as_tensor(mean) + torch.as_tensor(std)).shape)), mean, std)


def _normal(form: Form, mean: Tensor | float, std: Tensor | float) -> RandomProperty:
    parts = torch.complex128 if isinstance(mean, torch.Tensor) and mean.is_complex() else torch.float64
    return NormalProperty(form, torch.as_tensor(mean, dtype=parts), torch.as_tensor(std, dtype=torch.float64))


def one_parameter(
    make: Callable[[float], Distribution], default: Any
) -> Callable[[str, Sequence[Any], Mapping[str, Any]], RandomProperty | None]:
    """Return the builder for an in-place API with one number as its parameter."""

    def build(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
        name = "p" if api.startswith("geometric") else "rate"
        given = bound(api, (("input", REQUIRED), (name, default)), args, kwargs)
        return SampleProperty(_form(args, kwargs), make(float(given[name])))

    return build


def two_parameters(
    make: Callable[[float, float], Distribution], names: tuple[str, str], defaults: tuple[float, float]
) -> Callable[[str, Sequence[Any], Mapping[str, Any]], RandomProperty | None]:
    """Return the builder for an in-place API with two numbers as its parameters."""
    parameters: Parameters = (("input", REQUIRED), (names[0], defaults[0]), (names[1], defaults[1]))

    def build(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
        given = bound(api, parameters, args, kwargs)
        return SampleProperty(_form(args, kwargs), make(float(given[names[0]]), float(given[names[1]])))

    return build


def randint(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``randint`` as (high, size) and (low, high, size)."""
    numbers = list(args)
    size = kwargs.get("size")
    if size is None and numbers and not isinstance(numbers[-1], int):
        size = numbers.pop()
    low, high = _span(numbers, kwargs)
    shape = None if size is None else tuple(size)
    return SampleProperty(Form(shape, kwargs.get("dtype")), distributions.integers(low, high))


def randint_like(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``randint_like`` as (input, high) and (input, low, high)."""
    low, high = _span(list(args[1:]), kwargs)
    return SampleProperty(_form(args, kwargs), distributions.integers(low, high))


def _span(numbers: list[Any], kwargs: Mapping[str, Any]) -> tuple[int, int]:
    if "high" in kwargs:
        return int(numbers[0] if numbers else kwargs.get("low") or 0), int(kwargs["high"])
    if len(numbers) > 1:
        return int(numbers[0]), int(numbers[1])
    return int(kwargs.get("low") or 0), int(numbers[0])


def random(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``random_`` as (), (to), (from, to); without ``to``, all integers that the dtype holds."""
    form = _form(args, kwargs)
    place = _place(args, kwargs)
    numbers = [number for number in args[1:] if isinstance(number, int)]
    low, high = kwargs.get("from"), kwargs.get("to")
    if len(numbers) == 1 and high is None:
        high = numbers[0]
    elif len(numbers) > 1:
        low, high = numbers[0], numbers[1]
    elif numbers:
        low = numbers[0]
    if high is None:
        assert place is not None
        high = _whole_range(place.dtype)
    return SampleProperty(form, distributions.integers(int(low or 0), int(high)))


def _whole_range(dtype: torch.dtype) -> int:
    if dtype is torch.bool:
        return 2
    if dtype.is_floating_point:
        # torch.finfo.eps is the distance after 1, so that 2 / eps is the last of the exact integers
        return int(2 / torch.finfo(dtype).eps) + 1
    return int(torch.iinfo(dtype).max) + 1
