from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.cuda import CudaDevice
from pytest_msprobe.devices.math_modes import ReducedPrecision, math_modes, read_modes, reduced_precision
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.errors import DeviceError
from tests.support.requirements import require


def test_a_device_without_the_method_says_that_nothing_is_on() -> None:
    assert reduced_precision(CpuDevice()) == ReducedPrecision()


def test_modes_are_read_from_a_text() -> None:
    assert read_modes("conv=hf32, matmul=tf32,saturation") == ReducedPrecision(
        matmul="tf32", conv="hf32", saturation=True
    )
    assert read_modes("") == ReducedPrecision()


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("conv=tf33", "math mode 'tf33' of conv: not one of tf32, hf32, bf16"),
        ("pool=tf32", "math mode 'pool=tf32': not one of matmul=FORMAT"),
        ("conv", "math mode 'conv': not one of matmul=FORMAT"),
        ("saturation=tf32", "math mode 'saturation=tf32': not one of"),
    ],
)
def test_an_unknown_mode_of_a_simulated_device_is_refused_with_what_is_allowed(
    text: str, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSPROBE_SIM_MATH_MODES", text)
    with pytest.raises(DeviceError) as error:
        SimDevice().reduced_precision()
    assert str(error.value).startswith(f"MSPROBE_SIM_MATH_MODES: {reported}")


def test_a_device_that_returns_something_else_is_refused_by_name() -> None:
    class Odd(CpuDevice):
        name = "odd"

        def reduced_precision(self) -> dict[str, str]:
            return {"conv": "tf32"}

    with pytest.raises(DeviceError, match=r"'odd': reduced_precision\(\) returns a dict"):
        reduced_precision(Odd())


@pytest.mark.parametrize(
    ("error", "reported"),
    [(RuntimeError("mixed switches"), "RuntimeError: mixed switches"), (DeviceError("no driver"), "no driver")],
)
def test_a_device_that_raises_is_reported_by_name(error: Exception, reported: str) -> None:
    class Broken(CpuDevice):
        name = "broken"

        def reduced_precision(self) -> ReducedPrecision:
            raise error

    with pytest.raises(DeviceError) as caught:
        reduced_precision(Broken())
    assert str(caught.value) == f"device 'broken': reduced_precision() raises {reported}"


def test_what_is_on_stands_among_the_modes_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_SIM_MATH_MODES", "conv=hf32,fp16_reduction")
    modes = math_modes(SimDevice())
    assert (modes["HF32 conv"], modes["fp16 reduced-precision reduction"]) == ("on", "on")


@pytest.fixture
def cudnn() -> Iterator[Any]:
    found = torch.backends.cudnn
    require(hasattr(getattr(found, "conv", None), "fp32_precision"), "a torch with a switch for each kind of operation")
    former = found.conv.fp32_precision, found.rnn.fp32_precision
    yield found
    found.conv.fp32_precision, found.rnn.fp32_precision = former


def test_switches_of_a_gpu_that_differ_are_read_one_by_one(cudnn: Any) -> None:
    cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = "ieee", "tf32"
    with pytest.raises(RuntimeError):
        _ = cudnn.allow_tf32
    stated = CudaDevice().reduced_precision()
    assert (stated.conv, stated.rnn) == ("", "tf32")


def test_an_older_torch_has_one_switch_for_convolutions_and_recurrent_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(allow_tf32=True))
    stated = CudaDevice().reduced_precision()
    assert (stated.conv, stated.rnn) == ("tf32", "tf32")


def test_the_driver_may_overrule_all_switches_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(allow_tf32=True))
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert CudaDevice().reduced_precision().conv == ""


@pytest.mark.parametrize(("given", "allowed"), [(True, True), ((False, True), False)])
def test_a_reduction_of_narrow_products_may_be_a_pair_of_switches(
    given: object, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    matmul = SimpleNamespace(
        allow_tf32=False,
        allow_fp16_reduced_precision_reduction=given,
        allow_bf16_reduced_precision_reduction=given,
    )
    monkeypatch.setattr(torch.backends, "cuda", SimpleNamespace(matmul=matmul))
    stated = CudaDevice().reduced_precision()
    assert (stated.fp16_reduction, stated.bf16_reduction, stated.fp16_accumulation) == (allowed, allowed, False)


@pytest.mark.parametrize(
    ("variable", "value", "saturates"),
    [
        ("INF_NAN_MODE_ENABLE", "0", True),
        ("INF_NAN_MODE_ENABLE", "1", False),
        ("INF_NAN_MODE_FORCE_DISABLE", "1", True),
    ],
)
def test_the_environment_says_whether_an_npu_saturates(
    variable: str, value: str, saturates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INF_NAN_MODE_ENABLE", raising=False)
    monkeypatch.delenv("INF_NAN_MODE_FORCE_DISABLE", raising=False)
    monkeypatch.setenv(variable, value)
    switches = SimpleNamespace(matmul=SimpleNamespace(allow_hf32=False), conv=SimpleNamespace(allow_hf32=True))
    monkeypatch.setattr(torch, "npu", switches, raising=False)
    assert NpuDevice().reduced_precision() == ReducedPrecision(conv="hf32", saturation=saturates)


def test_an_npus_compile_mode_is_reported_where_torch_npu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    off = SimpleNamespace(allow_hf32=False)
    npu = SimpleNamespace(matmul=off, conv=off, is_jit_compile_false=lambda: True)
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    assert NpuDevice().math_modes()["jit compile"] == "off"
