"""Whether a card still works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.containment.internal_errors import ends_run
from pytest_msprobe.devices.health import compute_something
from pytest_msprobe.results.outcomes import describe_error

if TYPE_CHECKING:
    from pytest_msprobe.devices.device import Device


def failed_probe(device: Device) -> str | None:
    """Compute something tiny on the active card; return None where that works, else the error in words.

    A wrong result is no reason to give a card up: whether results are right is what items are about.
    """
    try:
        compute_something(device)
    except BaseException as error:
        if ends_run(error):
            raise
        return describe_error(error)
    return None
