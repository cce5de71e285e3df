"""The models of docs/compatibility.md compute the same bits while every call is checked."""

from __future__ import annotations

import pytest
import torch

import pytest_msprobe
from tests.corpus.families import FAMILIES, MODEL_SEED, STEP_SEED, seed


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
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_gradients_and_weights_are_the_same(family: str, level: str) -> None:
    if family.startswith(("gpt2", "llama")):
        pytest.importorskip("transformers")
    plain = step(family)
    with pytest_msprobe.live(per_api=None, level=level) as checks:
        checked = step(family)
    assert all(map(torch.equal, plain, checked))
    assert checks.failed == []
