"""Cards of another machine, or of another environment of this one, as a device: ``remote:ssh=user@host``.

Records run there in a Python process that ssh starts, and their results come back; ``--msprobe-device`` and
``--msprobe-baseline`` take the name. The process there is ``pytest_msprobe.extensions.remote.server_process``.
It adds no option and writes no file.

Take it out by deleting this folder and tests/extensions/remote; ``remote:`` is an unknown device then.

Importing its modules loads msgspec, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceRegistry


def pytest_msprobe_register_devices(registry: DeviceRegistry) -> None:
    """Add the device ``remote``."""
    from pytest_msprobe.extensions.remote.remote_device import RemoteDevice

    registry.add(RemoteDevice())
