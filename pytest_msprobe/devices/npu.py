"""Ascend NPUs through ``torch_npu``."""

from __future__ import annotations

from dataclasses import replace

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.math_modes import ReducedPrecision, ascend_saturates, on_off


class NpuDevice(Accelerator):
    """NPUs; ASCEND_RT_VISIBLE_DEVICES chooses among them as in any torch_npu program."""

    name = "npu"
    remedy = "source CANN's set_env.sh so that its libraries are found"

    def math_modes(self) -> dict[str, str]:
        """Return torch_npu's switches by name."""
        stated = self.reduced_precision()
        modes = {"HF32 matmul": on_off(stated.matmul), "HF32 conv": on_off(stated.conv)}
        compiles_never = getattr(self.runtime(), "is_jit_compile_false", None)
        return modes if compiles_never is None else modes | {"jit compile": on_off(not compiles_never())}

    def reduced_precision(self) -> ReducedPrecision:
        """Return what torch_npu's switches and the environment say; recurrent layers are products there."""
        switches = super().reduced_precision()
        return replace(switches, rnn=switches.matmul, saturation=ascend_saturates())
