"""Brings a standard, and the golden definition of an operation that the CPU lacks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from msprobe_standards import Standard, Verdict


@dataclass(frozen=True)
class MostlyClose(Standard):
    """Passes where nearly all elements are within a thousandth of golden; dropout inside an operation may hide few."""

    name = "mostly_close"
    wanted = frozenset({"rel_err_thousandth"})

    min_share: float = 0.99

    def decide(self, metrics, baseline_metrics):
        share = metrics["rel_err_thousandth"]
        outcome = "pass" if share >= self.min_share else "fail"
        return Verdict(outcome, self.name, f"{share:.4g} of the elements are within a thousandth")


def npu_scaled_tanh(x, scale):
    """``NPU.npu_scaled_tanh`` in torch: differentiable, so that its backward record is judged as well."""
    return torch.tanh(x) * scale


def pytest_msprobe_register_standards(registry):
    registry.add("mostly_close", MostlyClose)


def pytest_msprobe_register_references(registry):
    registry.add("NPU.npu_scaled_tanh", npu_scaled_tanh)
