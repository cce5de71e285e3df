"""Device types of torch by their names, without a card of any."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.device import hardware
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.devices.registry import ACCELERATOR, AUTO, DeviceRegistry
from pytest_msprobe.engine.values.error_kinds import is_unsupported
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.results.outcomes import Skip, SkipReason


class OnCpu(Accelerator):
    """A card whose tensors are the CPU's, and that has not every dtype."""

    lacking = torch.float64

    def location(self) -> torch.device:
        return torch.device("cpu")

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return super().put(Refusing(tensor, self.lacking))  # type: ignore[arg-type]

    def _has(self, dtype: torch.dtype) -> bool:
        return dtype is not self.lacking


class Refusing:
    """A tensor that is copied to no card if it has a dtype, as torch refuses to copy float64 to a Mac's."""

    def __init__(self, tensor: torch.Tensor, lacking: torch.dtype) -> None:
        self.tensor, self.dtype, self._lacking = tensor, tensor.dtype, lacking

    def detach(self) -> Refusing:
        return self

    def to(self, place: torch.device) -> torch.Tensor:
        if self.dtype is self._lacking:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
            )
        return self.tensor.to(place)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what sets torch's current accelerator to a type."""

    def set_to(name: str | None) -> None:
        device = None if name is None else SimpleNamespace(type=name)
        monkeypatch.setattr(torch, "accelerator", SimpleNamespace(current_accelerator=lambda: device), raising=False)

    return set_to


def with_backend(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Register a module as a backend does."""
    module = ModuleType(f"torch.{name}")
    vars(module).update(functions)
    monkeypatch.setattr(torch, name, module, raising=False)


def test_a_type_that_torch_names_is_a_device_under_its_name() -> None:
    device = DeviceRegistry().get("xpu")
    assert isinstance(device, Accelerator)
    assert (device.name, device.count(), hardware(device)) == ("xpu", torch.xpu.device_count(), "xpu")


def test_an_unknown_type_is_refused_with_those_that_this_torch_has() -> None:
    with pytest.raises(
        DeviceError, match=r"unknown device 'xpus'; known are auto, npu, .*accelerator, xpu, mps.*'xpu'"
    ):
        DeviceRegistry().get("xpus")


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(DeviceError, match="device 'meta': its tensors have no values"):
        DeviceRegistry().get("meta")


def test_a_type_that_nothing_drives_names_the_package_that_would() -> None:
    with pytest.raises(DeviceError, match=r"'hpu': the package habana_frameworks.torch is not installed.*conftest\.py"):
        DeviceRegistry().get("hpu").count()


def test_a_package_of_the_types_name_is_imported_when_its_cards_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_tiny.py").write_text(
        "import torch, types\ntorch.tiny = types.SimpleNamespace(device_count=lambda: 3)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch, "tiny", None, raising=False)
    monkeypatch.delattr(torch, "tiny")
    device = DeviceRegistry().get("tiny")
    assert "torch_tiny" not in sys.modules
    assert device.count() == 3
    monkeypatch.delitem(sys.modules, "torch_tiny")


def test_what_the_backends_module_lacks_is_torchs_own(current: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    current("tiny")
    with_backend(monkeypatch, "tiny", device_count=lambda: 2)
    chosen: list[Any] = []
    vars(torch.accelerator).update(set_device_index=chosen.append, synchronize=lambda: chosen.append("waited"))
    Accelerator("tiny").activate(1)
    assert chosen == [1, "waited"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_function_that_neither_has_is_named(is_new: bool, current: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    current("tiny")
    with_backend(monkeypatch, "tiny")
    if not is_new:
        monkeypatch.delattr(torch, "accelerator")
        monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "tiny")
    with pytest.raises(DeviceError, match=r"torch\.tiny has no device_count\(\)") as raised:
        Accelerator("tiny").count()
    assert ("this torch has no torch.accelerator (2.6 has)" in str(raised.value)) is not is_new


def test_a_card_that_cannot_be_started_is_refused_in_the_drivers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(index: int) -> None:
        raise RuntimeError("no firmware")

    with_backend(monkeypatch, "tiny", set_device=fail, synchronize=bool)
    with pytest.raises(DeviceError, match="device tiny:1 cannot be started: no firmware"):
        Accelerator("tiny").activate(1)


def test_torchs_accelerator_is_the_device_that_knows_most_of_it(current: Any) -> None:
    current("npu")
    assert isinstance(DeviceRegistry().get(ACCELERATOR), NpuDevice)
    current("xpu")
    assert type(DeviceRegistry().get(ACCELERATOR)) is Accelerator


def test_no_accelerator_is_said_to_be_missing(current: Any) -> None:
    current(None)
    with pytest.raises(DeviceError, match="'accelerator': this torch has no accelerator, and no backend is loaded"):
        DeviceRegistry().get(ACCELERATOR)


@pytest.mark.parametrize(("cards", "taken"), [(2, "tiny"), (0, "cpu")])
def test_auto_takes_torchs_accelerator_where_it_has_a_card(
    cards: int, taken: str, current: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    current("tiny")
    with_backend(monkeypatch, "tiny", device_count=lambda: cards)
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "tiny")
    assert DeviceRegistry().get(AUTO).name == taken


def test_a_torch_without_the_common_api_knows_a_backend_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "accelerator", raising=False)
    with_backend(monkeypatch, "tiny", device_count=lambda: 1, is_available=lambda: True)
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "tiny")
    assert DeviceRegistry().get(ACCELERATOR).name == "tiny"


def test_a_dtype_that_the_card_lacks_is_a_skip_with_this_reason() -> None:
    card = OnCpu("mps")
    with pytest.raises(Skip, match=r"mps has no torch\.float64: TypeError: Cannot convert a MPS Tensor") as raised:
        card.put(torch.ones(2, dtype=torch.float64))
    assert raised.value.reason is SkipReason.UNSUPPORTED
    assert card.put(torch.ones(2)).dtype is torch.float32


def test_a_card_that_takes_no_tensor_at_all_is_no_skip() -> None:
    class Lost(OnCpu):
        def _has(self, dtype: torch.dtype) -> bool:
            return False

    with pytest.raises(TypeError, match="Cannot convert"):
        Lost("mps").put(torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    "text",
    [
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.",
        "User specified an unsupported autocast device_type 'hpu'",
        "Tried to use AMP with the `tiny` backend, but the backend has not registered a module",
    ],
)
def test_what_backends_say_of_what_they_lack_is_no_failure(text: str) -> None:
    assert is_unsupported(RuntimeError(text))
    assert not is_unsupported(RuntimeError("tiny: the kernel failed; this card doesn't support faults"))


def test_switches_of_a_backend_are_the_precision_that_it_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    with_backend(monkeypatch, "tiny", matmul=SimpleNamespace(allow_tf32=True), conv=SimpleNamespace(allow_hf32=True))
    switches = SimpleNamespace(rnn=SimpleNamespace(fp32_precision="bf16"), conv=SimpleNamespace(allow_hf32=False))
    monkeypatch.setattr(torch.backends, "tiny", switches, raising=False)
    stated = Accelerator("tiny").reduced_precision()
    assert (stated.matmul, stated.conv, stated.rnn) == ("tf32", "hf32", "bf16")
    with_backend(monkeypatch, "plain", matmul=SimpleNamespace(allow_tf32=False))
    assert not Accelerator("plain").reduced_precision().words()


def test_memory_that_the_backend_does_not_count_is_unknown_and_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncounted(index: int) -> int:
        raise RuntimeError("Allocator for tiny is not a DeviceAllocator.")

    with_backend(monkeypatch, "tiny", memory_reserved=uncounted)
    assert Accelerator("tiny").free_memory() == float("inf")
    counted = {"memory_reserved": lambda _: 30, "memory_allocated": lambda _: 10, "mem_get_info": lambda _: (5, 100)}
    with_backend(monkeypatch, "tiny", **counted)
    assert Accelerator("tiny").free_memory() == 25
