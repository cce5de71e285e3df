"""Models of benchmarks/RESULTS.md compute the same bits while every call is checked: those that torch alone builds."""

from __future__ import annotations

import pytest
import torch

import pytest_msprobe
from tests.corpus.families import FAMILIES, MODEL_SEED, STEP_SEED, seed

OF_TORCH = [family for family in FAMILIES if not family.startswith(("gpt2", "llama"))]


def step(family: str) -> list[torch.Tensor]:
    seed(MODEL_SEED)
    model, loss_of = FAMILIES[family]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seed(STEP_SEED)
    loss = loss_of()
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    optimizer.step()
    return [loss.detach(), *gradients, *model.state_dict().values(), torch.get_rng_state()]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["L1", "aten"])
@pytest.mark.parametrize("family", OF_TORCH)
def test_loss_gradients_and_weights_are_the_same(family: str, level: str) -> None:
    plain = step(family)
    with pytest_msprobe.live(per_api=None, level=level) as checks:
        checked = step(family)
    assert all(map(torch.equal, plain, checked))
    assert checks.failed == []
