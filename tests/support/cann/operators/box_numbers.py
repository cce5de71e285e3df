"""Numbers of tensors as arrays of numpy, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def numbers(x: Tensor) -> Any:
    return x.detach().double().numpy()


def like(found: Any, x: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(found, dtype=np.float64).copy()).to(x.dtype)
