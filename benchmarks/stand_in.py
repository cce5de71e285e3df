"""A pytest plugin with two devices: the CPU that records what its calls return, and one that returns that at no cost.

    pytest -p stand_in --stand-in FOLDER --msprobe-device recording-cpu ...
    pytest -p stand_in --stand-in FOLDER --msprobe-device stand-in ...

What a check takes on the second one is the CPU's own share of it: results are mapped from files, and inputs stay where
they are, so no call may write to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.devices.registry import DeviceRegistry


class StandIn:
    """Adds both devices, which keep results in a folder: a file for each call of a record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls: Counter[str] = Counter()

    @pytest.hookimpl
    def pytest_msprobe_register_devices(self, registry: DeviceRegistry) -> None:
        """Add the devices ``recording-cpu`` and ``stand-in``."""
        from pytest_msprobe.devices.cpu import CpuDevice

        recording, stand_in = CpuDevice(), CpuDevice()
        recording.name, stand_in.name = "recording-cpu", "stand-in"
        recording.call = self.recorded  # type: ignore[method-assign]
        stand_in.call = self.returned  # type: ignore[method-assign]
        stand_in.put = _as_it_is  # type: ignore[method-assign]
        registry.add(recording)
        registry.add(stand_in)

    def recorded(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call, and write what comes out with what it says of gradients."""
        import torch

        from pytest_msprobe.engine.values.pytree import map_tensors

        found = func(*args, **kwargs)
        wanted: list[bool] = []
        plain = map_tensors(lambda each: wanted.append(each.requires_grad) or each.detach().contiguous(), found)
        torch.save((plain, wanted), self._path(record))
        return found

    def returned(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Return what was written for this call."""
        import torch

        from pytest_msprobe.engine.values.pytree import map_tensors

        plain, wanted = torch.load(self._path(record), mmap=True)
        flags = iter(wanted)
        return map_tensors(lambda each: each.requires_grad_(next(flags)), plain)

    def _path(self, record: str) -> Path:
        self._calls[record] += 1
        return self.folder / f"{record}.{self._calls[record]}.pt"


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stand-in", required=True, type=Path)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(StandIn(config.getoption("stand_in")))
