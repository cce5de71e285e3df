from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.cuda import CudaDevice
from pytest_msprobe.devices.math_modes import environment_modes, full_precision, math_modes
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.golden import baseline_side, golden_side
from pytest_msprobe.engine.replay.calls.side import Side, run_forward
from tests.support.requirements import require


@pytest.fixture
def _reduced_precision() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


def precision_inside(side: Side, arguments: Arguments) -> str:
    seen: list[str] = []
    run_forward(
        lambda x: seen.append(torch.get_float32_matmul_precision()),
        arguments,
        side,
        operation="matmul",
        record="Torch.matmul.0.forward",
        differentiate=False,
    )
    return seen[0]


@pytest.mark.usefixtures("_reduced_precision")
def test_golden_runs_without_reduced_precision_and_leaves_the_mode_as_it_was() -> None:
    arguments = Arguments((torch.ones(2),), {}, frozenset())
    assert precision_inside(golden_side("matmul", arguments), arguments) == "highest"
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.usefixtures("_reduced_precision")
def test_the_baseline_computes_as_the_process_is_set() -> None:
    arguments = Arguments((torch.ones(2),), {}, frozenset())
    assert precision_inside(baseline_side(None), arguments) == "medium"


@pytest.mark.usefixtures("_reduced_precision")
def test_modes_are_reported_by_name() -> None:
    assert math_modes()["float32 matmul precision"] == "medium"


@pytest.fixture
def switches() -> Iterator[list[Any]]:
    """Return oneDNN's newer switches, and put them and cuBLAS's back."""
    mkldnn, cuda = torch.backends.mkldnn, torch.backends.cuda
    found = [getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    have_their_own = all(hasattr(one, "fp32_precision") for one in [*found, cuda.matmul])
    require(have_their_own, "a torch with a switch of its own for each kind of operation")
    former = [(one, one.fp32_precision) for one in [*found, cuda.matmul]]
    yield found
    for one, precision in former:
        one.fp32_precision = precision


def test_a_golden_run_is_in_full_precision_whichever_switch_reduced_it(switches: list[Any]) -> None:
    for one in switches:
        one.fp32_precision = "bf16"
    assert {"oneDNN matmul", "oneDNN conv", "oneDNN rnn"} <= math_modes().keys()
    with full_precision():
        assert not [name for name in math_modes() if name.startswith("oneDNN")]
    assert [one.fp32_precision for one in switches] == ["bf16"] * 3


def test_a_process_that_uses_the_newer_switches_is_reported_and_left_as_it_is(switches: list[Any]) -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        torch.get_float32_matmul_precision()
    modes = math_modes(CudaDevice())
    assert (modes["TF32 matmul"], modes["float32 matmul precision"]) == ("on", "set by backend")
    with full_precision():
        pass
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


@pytest.mark.parametrize(
    ("mode", "holder", "switch"),
    [
        ("TF32 matmul", torch.backends.cuda.matmul, "allow_tf32"),
        ("TF32 conv", torch.backends.cudnn, "allow_tf32"),
        ("fp16 reduced-precision reduction", torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        ("bf16 reduced-precision reduction", torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        ("cuDNN deterministic", torch.backends.cudnn, "deterministic"),
        ("cuDNN benchmark", torch.backends.cudnn, "benchmark"),
    ],
)
def test_a_gpus_modes_follow_torchs_switches(mode: str, holder: Any, switch: str) -> None:
    former = getattr(holder, switch)
    try:
        for enabled, word in ((True, "on"), (False, "off")):
            setattr(holder, switch, enabled)
            assert math_modes(CudaDevice())[mode] == word
    finally:
        setattr(holder, switch, former)


def test_an_npus_modes_are_torch_npus_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch_npu cannot be loaded without its driver; its switches are two attributes.
    switches = SimpleNamespace(matmul=SimpleNamespace(allow_hf32=False), conv=SimpleNamespace(allow_hf32=True))
    monkeypatch.setattr(torch, "npu", switches, raising=False)
    modes = math_modes(NpuDevice())
    assert (modes["HF32 matmul"], modes["HF32 conv"]) == ("off", "on")


@pytest.mark.parametrize(("set_up", "reported"), [((True,), "on"), ((True, True), "warn only"), ((False,), "off")])
def test_determinism_is_reported(set_up: tuple[bool, ...], reported: str) -> None:
    try:
        torch.use_deterministic_algorithms(set_up[0], warn_only=set_up == (True, True))
        assert math_modes()["deterministic"] == reported
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_device_may_have_modes_of_its_own() -> None:
    class Fast(CpuDevice):
        def math_modes(self) -> dict[str, str]:
            return {"approximate exp": "on"}

    assert next(iter(math_modes(Fast()).items())) == ("approximate exp", "on")


def test_variables_that_choose_a_mode_are_reported_where_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    assert "NVIDIA_TF32_OVERRIDE" not in environment_modes()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert environment_modes()["NVIDIA_TF32_OVERRIDE"] == math_modes()["NVIDIA_TF32_OVERRIDE"] == "1"
