"""Random results of which little or nothing can be said, and factories that promise no values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.probability_switch import recurrent_switches
from pytest_msprobe.engine.replay.random_apis.random_property import (
    REQUIRED,
    Form,
    Parameters,
    RandomProperty,
    bound,
    sizes,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict


# Weights and values that a math mode rounds to the 11 significant bits of TF32 and HF32: (1 + 2^-11)^2.
_ROUNDED_OPERANDS = 2.0**-10


@dataclass(frozen=True, slots=True)
class UnjudgedProperty:
    """A result of which nothing sound can be said; ``reason`` is why."""

    reason: str

    def check_forward(self, output: Any) -> Verdict:
        """Skip."""
        return tail_bound.unjudged(self.reason)

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Skip."""
        return tail_bound.unjudged(self.reason)


@dataclass(frozen=True, slots=True)
class UndefinedProperty:
    """Memory that was never written: only its form is promised."""

    form: Form

    def check_forward(self, output: Any) -> Verdict:
        """Judge shape and dtype."""
        return self.form.check(output) or tail_bound.held("no values promised; shape and dtype are right")

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Return nothing."""
        return None


@dataclass(frozen=True, slots=True)
class BoundedProperty:
    """Dropout inside: no element of the first result is larger than ``bound``, the rest is not judged."""

    form: Form
    bound: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge form and magnitude; NaN is left alone, for a row without anything visible has it too."""
        malformed = self.form.check(output)
        if malformed:
            return malformed
        y = tensors(output)[0]
        # sums of many rounded terms: a few steps beyond the bound are rounding (docs/screening.md)
        limit = self.bound * (1 + 16 * torch.finfo(y.dtype).eps + _ROUNDED_OPERANDS)
        large = int((y.double().abs() > limit).sum())
        if large:
            return tail_bound.broken(
                f"{large} elements are larger than {self.bound:.6g}, which bounds them", large=large
            )
        return tail_bound.held("dropout inside: only shape and magnitude are judged")

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Skip."""
        return tail_bound.unjudged("dropout inside: nothing is known of its gradient")


@dataclass(frozen=True, slots=True)
class SelectionProperty:
    """Every value of the result is one of the values of ``x``."""

    x: Tensor

    def check_forward(self, output: Any) -> Verdict:
        """Judge that no value is new."""
        y = tensors(output)[0]
        new = int((~torch.isin(y, self.x) & ~y.isnan()).sum())
        if new:
            return tail_bound.broken(f"{new} elements do not occur in the input", new=new)
        return tail_bound.held("random regions: only that the values occur in the input is judged")

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Skip."""
        return tail_bound.unjudged("random regions: nothing is known of the gradient")


#: Properties that distinguish a right result from few of the wrong ones.
JUDGES_LITTLE = (BoundedProperty, SelectionProperty)

_ATTENTION: Parameters = (
    ("query", REQUIRED), ("key", REQUIRED), ("value", REQUIRED), ("attn_mask", None), ("dropout_p", 0.0),
)  # fmt: skip
_HEADS: Parameters = (
    ("query", REQUIRED), ("key", REQUIRED), ("value", REQUIRED), ("embed_dim_to_check", None), ("num_heads", None),
    ("in_proj_weight", None), ("in_proj_bias", None), ("bias_k", None), ("bias_v", None), ("add_zero_attn", None),
    ("dropout_p", 0.0), ("out_proj_weight", None), ("out_proj_bias", None), ("training", True),
)  # fmt: skip


def attention(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of attention with dropout: averages of the values, some left out and the rest scaled up."""
    return _attention(bound(api, _ATTENTION, args, kwargs))


def flash_attention(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ATen's flash attention, whose dropout comes where others have their mask."""
    return _attention(bound(api, (*_ATTENTION[:3], ("dropout_p", 0.0)), args, kwargs))


def efficient_attention(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ATen's memory-efficient attention and cuDNN's, with another switch before the dropout."""
    names = (*_ATTENTION[:3], ("attn_bias", None), ("compute_log_sumexp", False), ("dropout_p", 0.0))
    return _attention(bound(api, names, args, kwargs))


def _attention(given: Mapping[str, Any]) -> RandomProperty | None:
    p = float(given["dropout_p"])
    if p == 0:
        return None
    query, value = given["query"], given["value"]
    shape = (*query.shape[:-1], value.shape[-1]) if query.dim() == value.dim() else None
    return average_of(value, 1 - p, Form(shape))


def average_of(value: Tensor, keep: float, form: Form) -> RandomProperty:
    """Return the property of averages of values with dropout, of which the share ``keep`` is kept."""
    largest = float(value.abs().max()) if value.numel() else 0.0
    return BoundedProperty(form, largest / keep if keep else 0.0)


def multi_head_attention(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of whole attention layers, whose projections bound nothing."""
    given = bound(api, _HEADS, args, kwargs)
    if not given["training"] or not given["dropout_p"]:
        return None
    return UnjudgedProperty("dropout inside an attention layer: no property of its result is known")


def recurrent(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of recurrent networks with dropout; two argument orders, plain and packed."""
    start = recurrent_switches(args)
    switches = bound(
        api,
        (("has_biases", True), ("num_layers", 1), ("dropout", 0.0), ("training", False)),
        args[start:],
        kwargs,
    )
    if not switches["training"] or not switches["dropout"] or switches["num_layers"] < 2:
        return None
    states = tensors([value for value in args[1:start] if isinstance(value, (list, tuple))][:1])
    if api == "rnn_tanh" or (api == "lstm" and len(states) == 2 and states[0].shape == states[1].shape):
        return BoundedProperty(Form(), 1.0)
    return UnjudgedProperty("dropout between layers: no property of the result is known")


def fractional_pooling(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of fractional max pooling; given its random numbers, it is not random."""
    if len(tensors(args)) + len(tensors(dict(kwargs))) > 1:
        return None
    return SelectionProperty(tensors([*args, *kwargs.values()])[0])


def undefined(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of every spelling of ``empty``."""
    template = args[0] if args and isinstance(args[0], torch.Tensor) else kwargs.get("self", kwargs.get("input"))
    dtype = kwargs.get("dtype")
    if not isinstance(template, torch.Tensor):
        return UndefinedProperty(Form(sizes(args, kwargs), dtype))
    if api == "empty_like":
        return UndefinedProperty(Form(tuple(template.shape), dtype or template.dtype))
    rest = args[1:] if args and args[0] is template else args
    return UndefinedProperty(Form(sizes(rest, kwargs), dtype or template.dtype))
