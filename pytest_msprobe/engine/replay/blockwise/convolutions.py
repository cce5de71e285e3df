"""Convolutions, cut along the batch, or by the channels that come out where these are not in groups."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.given import Given, Rule
from pytest_msprobe.engine.replay.convolution_calls import convolution_call


def convolution(operation: str) -> Rule:
    """Return the rule of a convolution, plain or transposed."""

    def cuts(given: Given) -> Iterator[Cut]:
        call = convolution_call(operation, given)
        if call is None:
            return
        (values, tensor), (weight, kernels) = call.values, call.weight
        count, places = len(tensor), math.prod(axis.features for axis in call.axes)
        windows = {values: count * places * kernels[0].numel() * call.groups}
        yield Cut(call.shape, 0, {values: 0}, windows=windows)
        if call.groups == 1:
            inputs = {weight: 1 if call.is_transposed else 0} | ({} if call.bias is None else {call.bias[0]: 0})
            yield Cut(call.shape, 1, inputs, windows=windows)

    return cuts
