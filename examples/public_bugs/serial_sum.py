"""tenstorrent/tt-metal#55542: a running sum in float32 is rounded at each element, one after another."""

import numpy as np
import torch
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "cumsum"

    def forward(self, func, x, dim):
        return torch.from_numpy(np.add.accumulate(x.numpy(), axis=dim, dtype=np.float32))


def step():
    torch.cumsum(torch.rand(2, 16384), -1)


if __name__ == "__main__":
    record_step(step)
