"""verl-project/verl#6280: the same tokens have other log probabilities in a micro-batch of another size."""

import pytest
import torch


def logits(x, weight):
    return torch.stack([row @ weight for row in x])


def logits_in_parts(x, weight):
    """Split the inner dimension where there are few rows, as a matrix product does to keep a card busy."""
    size = 256 if len(x) < 8 else 1024
    return sum(logits(rows, part) for rows, part in zip(x.split(size, 1), weight.split(size), strict=True))


@pytest.mark.parametrize("kernel", [logits_in_parts, logits], ids=["faulty", "right"])
def test_logits(precision, kernel):
    torch.manual_seed(0)
    precision.check(kernel, torch.randn(8, 1024), torch.randn(1024, 16), golden=logits, batch_invariant=True)
