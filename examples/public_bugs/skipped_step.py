"""pytorch/pytorch#186360: the fused Adam updates weights though the scaler has found an infinity."""

import torch
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "_fused_adam_"

    def forward(self, func, *args, grad_scale=None, found_inf=None, **kwargs):
        return func(*args, **kwargs)


def step():
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    optimizer = torch.optim.Adam([weight], fused=True)
    optimizer.found_inf = torch.ones(())
    optimizer.step()


if __name__ == "__main__":
    record_step(step)
