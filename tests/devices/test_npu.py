from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.errors import DeviceError


def test_without_torch_npu_the_missing_package_is_named() -> None:
    with pytest.raises(DeviceError, match="the package torch_npu is not installed"):
        NpuDevice().count()


def test_a_torch_npu_whose_libraries_are_missing_is_reported_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_npu.py").write_text("raise ImportError('libhccl.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match=r"cannot be loaded: libhccl\.so: cannot open .*; source CANN's set_env\.sh"):
        NpuDevice().count()
