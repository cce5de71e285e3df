"""Plugs in a simulated device that computes one API wrongly."""

from __future__ import annotations

from pytest_msprobe.devices.sim import SimDevice


class FaultyDevice(SimDevice):
    """Computes as the CPU does, except that softmax loses its last column."""

    name = "faulty"

    def call(self, func, args, kwargs, *, record):
        output = super().call(func, args, kwargs, record=record)
        if record.startswith("Functional.softmax") and record.endswith("forward"):
            output = output.clone()
            output[..., -1] = 0
        return output


def pytest_msprobe_register_devices(registry):
    registry.add(FaultyDevice())
