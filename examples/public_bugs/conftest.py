"""Plugs in the devices and the compiler of the programs, each under the name of its file."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))


def pytest_configure(config):
    if config.getoption("msprobe_device") == "compiled:negative_zero":
        from torch._dynamo import register_backend

        register_backend(import_module("negative_zero").compile_graph, name="negative_zero")


def pytest_msprobe_register_devices(registry):
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem != "conftest" and "(Simulated):" in path.read_text():
            registry.add(import_module(path.stem).Faulty())
