"""A training on a card that flips one bit, once; every third step is computed twice."""

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe_hooks import replay_step


class WrongOnce(TorchDispatchMode):
    """Stands for the card: a high bit of one element is wrong in the 26th matrix product."""

    products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            self.products += 1
            if self.products == 26:
                result.view(torch.int32)[0, 0] ^= 1 << 27
        return result


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    replay = replay_step(model, optimizer=optimizer, every=3, folder="repeats")
    for _ in range(steps):
        x = torch.randn(8, 32)

        def forward_backward(x=x):
            loss = F.mse_loss(model(x), x.flip(1))
            loss.backward()
            return loss.detach()

        optimizer.zero_grad()
        replay(forward_backward)
        optimizer.step()
    return replay


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 32)
    )
    with WrongOnce():
        print(train(model, 12))
