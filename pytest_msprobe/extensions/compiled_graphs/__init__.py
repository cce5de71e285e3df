"""Functions compiled one by one: what ``torch.compile`` makes of each recorded call, next to its eager kernels.

Device: ``--msprobe-device compiled[:BACKEND]``, which compiles for the best card that there is. Of a failure it says
whether the same call passes where nothing is compiled; the summary counts what was compiled and where Python ran in
between. It adds no option and writes no file; without it ``compiled`` is an unknown device.

Take it out by deleting this folder, the hook library's extension of the same name, and
tests/extensions/compiled_graphs.

Importing its modules loads msgspec and pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceRegistry
    from pytest_msprobe.modes.check.features import CheckFeatures


def pytest_msprobe_register_devices(registry: DeviceRegistry) -> None:
    """Add the device ``compiled``."""
    from pytest_msprobe.devices.registry import AUTO
    from pytest_msprobe.extensions.compiled_graphs.compiled_device import CompiledDevice

    registry.add(CompiledDevice(best=lambda: registry.get(AUTO)))


def pytest_msprobe_register_check_features(registry: CheckFeatures) -> None:
    """Add what is said of compiled calls."""
    from pytest_msprobe.extensions.compiled_graphs.compiled_device import CompiledFeature

    registry.add(CompiledFeature())
