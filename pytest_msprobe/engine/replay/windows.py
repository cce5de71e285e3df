"""Where the windows of a convolution lie, and those by which its result gives the gradient of what they lie on."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one dimension: tap j of window i reads the element at ``starts[i] + offsets[j]``.

    What lies outside is zero. ``places`` are those that the windows give of the result, ``taps`` those of the kernel
    that the offsets belong to, both in order.
    """

    starts: range
    offsets: range
    places: slice
    taps: slice


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a convolution: so many elements of its ``image``, so many windows that give its ``features``.

    ``padding`` zeros stand before the image. A transposed convolution makes the image of the features.
    """

    image: int
    features: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    def windows(self) -> Windows:
        """Return the windows on the image that give the features."""
        starts = range(0, self.features * self.stride, self.stride)
        offsets = range(-self.padding, self.dilation * self.kernel - self.padding, self.dilation)
        return Windows(starts, offsets, slice(None), slice(None))

    def adjoint(self) -> list[Windows]:
        """Return the windows on the features that give the image.

        Of element r + stride * j the features at (r + padding - dilation * tap) / stride + j are a part, for the taps
        where that is a whole number. So each r has windows of its own, which read neighbouring features.
        """
        return [self._of_remainder(first) for first in range(min(self.stride, self.image))]

    def _of_remainder(self, first: int) -> Windows:
        divisor = math.gcd(self.stride, self.dilation)
        period, reach = self.stride // divisor, first + self.padding
        met = (tap for tap in range(min(period, self.kernel)) if (reach - self.dilation * tap) % self.stride == 0)
        tap = next(met, self.kernel)
        count = len(range(tap, self.kernel, period))
        offset, step = (reach - self.dilation * tap) // self.stride, self.dilation // divisor
        return Windows(
            range(len(range(first, self.image, self.stride))),
            range(offset, offset - step * count, -step),
            slice(first, None, self.stride),
            slice(tap, None, period),
        )
