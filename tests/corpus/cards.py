"""Cards that compute products and convolutions with fewer bits, in both directions, and what they say of it.

Rounding is that of `torch.round` on scaled float64 values, so that it shares nothing with the engine's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_msprobe.devices.math_modes import ReducedPrecision
from pytest_msprobe.engine.replay.calls.side import gradients_of
from tests.corpus.fault import Kernel, Launch, Variant

MULTIPLYING = """
    linear matmul mm bmm mv addmm addmv baddbmm addbmm einsum bilinear
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
"""

Round: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

_FIRST_FACTOR = {
    **dict.fromkeys(("mm", "bmm", "mv"), 0),
    **dict.fromkeys(("addmm", "addmv", "baddbmm", "addbmm"), 1),
}


def _away_from_zero(values: torch.Tensor) -> torch.Tensor:
    return (values.abs() + 0.5).floor() * values.sign()


def to_bits(bits: int, whole: Round = torch.round) -> Round:
    """Return what rounds float32 values to so many stored bits of the significand, by rounding to a whole number."""

    def rounded(values: torch.Tensor) -> torch.Tensor:
        significand, exponent = torch.frexp(values.double())
        return torch.ldexp(whole(torch.ldexp(significand, torch.tensor(bits + 1))), exponent - bits - 1).to(
            values.dtype
        )

    return rounded


NEAREST, AWAY, CUT = torch.round, _away_from_zero, torch.trunc


@dataclass(frozen=True, slots=True)
class Card:
    """What a card does to the operands of float32 products and convolutions, and to sums of products.

    ``products`` and ``convolutions`` round operands, ``gradients`` those of both in a backward pass where they are
    others. ``sums`` rounds the sum of products after every ``step`` of them, in float32 products and narrower ones.
    """

    products: Round | None = None
    convolutions: Round | None = None
    gradients: Round | None = None
    sums: Round | None = None
    step: int = 8

    def kernel(self, launch: Launch) -> Any:
        """Run a launch on this card."""
        has_onednn = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            with (
                warnings.catch_warnings(),
                sdpa_kernel(SDPBackend.MATH),
                _Kernels(self, launch.func is gradients_of),
            ):
                warnings.simplefilter("ignore")
                return launch.run()
        finally:
            torch._C._set_mkldnn_enabled(has_onednn)


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, card: Card, is_backward: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        others = card.gradients if is_backward else None
        self.products, self.convolutions = others or card.products, others or card.convolutions
        self.sums, self.step = card.sums, card.step

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _FIRST_FACTOR:
            first = _FIRST_FACTOR[name]
            left, right = (_through(self.products, tensor) for tensor in args[first : first + 2])
            # Sums are kept in float32, which has no complex numbers.
            if self.sums is not None and not left.is_complex() and name in ("mm", "bmm", "addmm", "baddbmm"):
                product = self._summed(left, right)
                return product if not first else kwargs.get("beta", 1) * args[0] + kwargs.get("alpha", 1) * product
            return func(*args[:first], left, right, *args[first + 2 :], **kwargs)
        if name == "convolution":
            return func(*(_through(self.convolutions, tensor) for tensor in args[:2]), *args[2:], **kwargs)
        if name == "convolution_backward":
            *others, (of_input, of_weight, of_bias) = args[3:]
            rounded = (_through(self.convolutions, tensor) for tensor in args[:3])
            products = func(*rounded, *others, [of_input, of_weight, False])
            return (*products[:2], func(*args[:3], *others, [False, False, of_bias])[2])
        return func(*args, **kwargs)

    def _summed(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        total: Any = 0
        for start in range(0, left.shape[-1], self.step):
            part = left[..., start : start + self.step].float() @ right[..., start : start + self.step, :].float()
            total = self.sums(total + part) if self.sums is not None else total + part
        return total.to(left.dtype) if left.shape[-1] else left @ right


def _through(rounding: Round | None, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if rounding is None or tensor.dtype != torch.float32 else rounding(tensor)


def card(name: str, meaning: str, kernel: Kernel, apis: str = MULTIPLYING, **modes: Any) -> Variant:
    """Return a card that says of itself that these modes are on, none without any."""
    return Variant(name, meaning, frozenset(apis.split()), kernel, both=True, modes=ReducedPrecision(**modes))
