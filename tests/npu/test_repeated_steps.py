"""Steps that are computed twice on a simulated card that computes one call wrong."""

from __future__ import annotations

import json

import pytest

from tests.support.npu.process import run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

TRAINING = """
import torch, torch_npu
import msprobe_hooks
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 3)).npu(1)
optimizer = torch.optim.AdamW(model.parameters())
replay = msprobe_hooks.replay_step(model, every=1, folder="repeats")
for _ in range(12):
    x = torch.randn(4, 8).npu(1)
    def forward_backward():
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()
    optimizer.zero_grad()
    replay(forward_backward)
    optimizer.step()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ("", []),
        ("tanh@1=wrong-once:8", [("wrong", 4, 2, "npu:1")]),
    ],
)
def test_the_card_the_step_and_the_pass_are_named(
    faults: str, expected: list[tuple[str, int, int, str]], pytester: pytest.Pytester
) -> None:
    run_script(TRAINING, SIMULATED_CANN_FAULTS=faults)
    report = json.loads((pytester.path / "repeats/repeats.json").read_text())
    found = [(each["kind"], each["step"], each["odd_pass"], each["card"]) for each in report["differences"]]
    assert (report["watched"], found) == (10, expected)
    assert all(each["call"]["operator"] == "aten.tanh.default" for each in report["differences"])
