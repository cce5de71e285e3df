"""Products and convolutions on the CPU as a device computes them with fewer bits.

Which calls that concerns is decided by the kernels that run, not by the call's name: a linear layer under any of its
names, a fused operator's definition and a user's own function reach the same few kernels, and so do their gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_msprobe.devices.math_modes import OPERAND_BITS, ReducedPrecision

_ATEN = torch.ops.aten

#: Where the two factors of a product are among the kernel's arguments.
_FACTORS = {
    packet: (first, first + 1)
    for first, packets in enumerate(
        (
            (_ATEN.mm, _ATEN.bmm, _ATEN.mv),
            (
                *(_ATEN.addmm, _ATEN.addmm_, _ATEN.addmv, _ATEN.addmv_, _ATEN.addbmm, _ATEN.addbmm_),
                *(_ATEN.baddbmm, _ATEN.baddbmm_, _ATEN._addmm_activation),
            ),
        )
    )
    for packet in packets
}
_CONVOLUTIONS = (_ATEN.convolution, _ATEN._convolution)
_BIAS_GRADIENT = [False, False, True]

#: Parts of the inner dimension whose sums a reduced-precision reduction rounds, and products that an accumulator of
#: float16 adds before it rounds: docs/standards-reference.md, "Math modes".
_PARTS = 4
_PRODUCTS_PER_STEP = 16


class RoundedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, products and convolutions are computed in the modes that a device states; ``used`` names those.

    float32 operands are rounded to nearest, or cut off where ``truncate`` says so; what is added to a product is not
    rounded. ``recurrent``: the products belong to a recurrent layer.
    """

    def __init__(self, stated: ReducedPrecision, *, recurrent: bool, truncate: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.used: dict[str, None] = {}
        self._of_products = stated.rnn if recurrent else stated.matmul
        self._of_convolutions = stated.conv
        self._stated = stated
        self._truncate = truncate

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one kernel."""
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet in _FACTORS:
            return self._product(func, _FACTORS[packet], args, kwargs)
        if packet in _CONVOLUTIONS:
            return func(*self._rounded(args, (0, 1), self._of_convolutions), **kwargs)
        if packet is _ATEN.convolution_backward:
            gradients = func(*self._rounded(args, (0, 1, 2), self._of_convolutions), **kwargs)
            # The gradient of the bias is a sum, and no product.
            return (*gradients[:2], func(*args[:10], _BIAS_GRADIENT)[2]) if args[10][2] else gradients
        return func(*args, **kwargs)

    def _product(self, func: Any, at: tuple[int, int], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        left, right = (args[i] for i in at)
        size = self._part(left.dtype, left.shape[-1]) if left.dim() >= 2 and right.dim() == left.dim() else 0
        if not size or func.overloadpacket in (_ATEN.addbmm, _ATEN.addbmm_, _ATEN._addmm_activation):
            return func(*self._rounded(args, at, self._of_products), **kwargs)
        first, *others = zip(left.split(size, -1), right.split(size, -2), strict=True)
        total = func(*args[: at[0]], *first, *args[at[1] + 1 :], **kwargs)
        for part in others:
            total += kwargs.get("alpha", 1) * torch.matmul(*part)
        return total

    def _part(self, dtype: torch.dtype, inner: int) -> int:
        """Return the length of the parts whose sums are rounded, 0 where they are not."""
        stated = self._stated
        modes = {torch.float16: "fp16_reduction", torch.bfloat16: "bf16_reduction"}
        if dtype == torch.float16 and stated.fp16_accumulation:
            mode, size = "fp16_accumulation", _PRODUCTS_PER_STEP
        elif dtype in modes and getattr(stated, modes[dtype]):
            mode, size = modes[dtype], max(1, -(-inner // _PARTS))
        else:
            return 0
        self.used[mode] = None
        return size

    def _rounded(self, args: Sequence[Any], at: Sequence[int], name: str) -> list[Any]:
        """Return a kernel's arguments, those at some places rounded to a format."""
        operands = list(args)
        for i in at if name else ():
            if operands[i].dtype in (torch.float32, torch.complex64):
                operands[i] = rounded(operands[i], OPERAND_BITS[name], truncate=self._truncate)
                self.used[name] = None
        return operands

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call a function as a side does, in the modes."""
        with _apart(), self:
            return func(*args, **kwargs)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Compute attention and recurrent layers by products that can be seen, instead of one fused kernel."""
    fuses = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(fuses)


def rounded(values: torch.Tensor, bits: int, *, truncate: bool = False) -> torch.Tensor:
    """Return float32 or complex64 values with so many stored bits of the significand, NaN and inf as they are.

    To the nearest, of two the one with an even last bit; or toward zero.
    """
    if values.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(values.resolve_conj()), bits, truncate=truncate))
    drop = 23 - bits
    whole = values.contiguous().view(torch.int32)
    if not truncate:
        whole = whole + ((whole >> drop & 1) + (1 << (drop - 1)) - 1)
    return torch.where(values.isfinite(), (whole >> drop << drop).view(torch.float32), values)
