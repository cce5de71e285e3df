"""Run the accuracy check of mindstudio-probe 26.2 with the CPU as its device.

    python acc_check_on_cpu.py acc_check -api_info dump.json -o out

The checker itself is untouched. Rebound before its main() runs are the name of its device, the call that chooses a
CUDA card, and autocast's device.
"""

from __future__ import annotations

import torch
from msprobe.msprobe import main
from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check, acc_check_utils

if __name__ == "__main__":
    acc_check.current_device = acc_check_utils.current_device = "cpu"
    acc_check_utils.autocast = lambda dtype=None: torch.autocast("cpu", dtype=dtype)
    torch.cuda.set_device = lambda device: None
    main()
