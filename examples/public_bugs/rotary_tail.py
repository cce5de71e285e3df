"""vllm-project/vllm-ascend#12723: a rotary embedding changes the norm of heads of 192."""

import pytest
import torch


def rotary(x, cos, sin):
    """Turn each element of the first half of a head with one of the second half."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def rotary_in_blocks(x, cos, sin):
    """Store each half as a block of a power of two, and the tail of the first one behind its end."""
    turned, half = rotary(x, cos, sin), x.shape[-1] // 2
    tail = (1 << (half - 1).bit_length()) - half
    turned[..., half : half + tail] = 0
    return turned


@pytest.mark.parametrize("kernel", [rotary_in_blocks, rotary], ids=["faulty", "right"])
def test_rotary(precision, kernel):
    torch.manual_seed(0)
    angles = torch.rand(16, 96)
    precision.check(
        kernel, torch.randn(4, 16, 192).bfloat16(), angles.cos().bfloat16(), angles.sin().bfloat16(), golden=rotary
    )
