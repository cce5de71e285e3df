"""pytorch/pytorch#175189: a batch norm has the wrong gradients of an input in channels-last format."""

import torch
from simulated import Simulated, record_step, without_strides


class Faulty(Simulated):
    api = "batch_norm"

    def backward(self, gradients, x, *args, **kwargs):
        if not x.is_contiguous():
            mean, deviation = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
            normal = (without_strides(x) - mean) / deviation
            gradients[1] = (self.arrived * normal).sum((0, 2, 3))
        return gradients


def step():
    x = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    norm = torch.nn.BatchNorm2d(3)
    norm(x.requires_grad_()).square().sum().backward()


if __name__ == "__main__":
    record_step(step)
