"""Texts of a ``conftest.py`` for inner runs: devices with a fault, a standard that warns."""

from __future__ import annotations

from textwrap import indent

_DEVICE = """
import os
import time
from pathlib import Path

import torch
from pytest_msprobe.devices.sim import SimDevice


class PlantedDevice(SimDevice):
    name = "{name}"

    def call(self, func, args, kwargs, *, record):
        result = func(*args, **kwargs)
{statements}
        return result


def pytest_msprobe_register_devices(registry):
    registry.add(PlantedDevice())
"""


def device_after_each_call(statements: str, name: str = "faulty") -> str:
    """Register a simulated device that runs these statements once ``result`` of ``record`` has been computed."""
    return _DEVICE.format(name=name, statements=indent(statements.strip("\n"), " " * 8))


STANDARD_THAT_WARNS = """
from dataclasses import dataclass
from typing import ClassVar


def pytest_msprobe_register_standards(registry):
    from msprobe_standards import Standard, Verdict

    @dataclass(frozen=True)
    class Doubtful(Standard):
        name: ClassVar[str] = "doubtful"
        wanted: ClassVar = frozenset({"max_abs_err"})
        exact_passes: ClassVar[bool] = False

        def decide(self, metrics, baseline_metrics):
            return Verdict("warn", self.name, "worth a look", margin=0.9)

    registry.add("doubtful", Doubtful)
"""

# A plugin that prints how often it hears of a phase ``{hook}``, and of how many items.
COUNTS_ITEMS = """
import pytest
seen = []
class Counting:
    @pytest.hookimpl(wrapper=True)
    def {hook}(self, item):
        seen.append(item.name)
        return (yield)
def pytest_configure(config):
    config.pluginmanager.register(Counting())
def pytest_unconfigure():
    print("seen", len(seen), len(set(seen)))
"""
