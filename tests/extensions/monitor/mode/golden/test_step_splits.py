"""Runs whose steps have other micro batches: what of them can be compared is, and the rest is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import msprobe_hooks
from tests.support.runs import check

STEPS = 12


def train(folder, split, what=("activations", "gradients", "parameters"), fault=None, share=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    statistics = ["norm", "min", "max"]
    with msprobe_hooks.watch(model, optimizer, folder, what=list(what), statistics=statistics):
        for step in range(STEPS):
            batch = torch.randn(32, 8)
            optimizer.zero_grad()
            if step == fault:
                with torch.no_grad():
                    model[2].weight[0, 0] += 3
            for part in batch.chunk(split):
                loss = (model(part) - part.sum(1, keepdim=True)).square().mean()
                (loss / split if share else loss).backward()
            optimizer.step()


def compared(pytester: pytest.Pytester, *options: str):
    return check(pytester, "--msprobe-monitor", "target", "--msprobe-golden", "golden", *options)


NOTE = "rank 0: steps have 2 micro batches, those of the golden run 1: actv, grad_unreduced * are not compared"


def test_gradients_and_parameters_are_compared_and_the_rest_is_named(pytester):
    train(pytester.path / "golden", 1)
    train(pytester.path / "target", 2)
    checked = compared(pytester)
    checked.result.stdout.fnmatch_lines(["no series left the tolerance", NOTE])
    assert [*checked.outcomes.values()].count("passed") == 4 * 3 * 3


def test_a_fault_is_found_in_what_is_compared(pytester):
    train(pytester.path / "golden", 1)
    train(pytester.path / "target", 2, fault=7)
    compared(pytester).result.stdout.fnmatch_lines(["first at step 7: param_origin/2.weight/norm", NOTE])


def test_a_golden_rerun_may_have_other_micro_batches(pytester):
    for name, split in (("golden", 1), ("target", 1), ("rerun", 2)):
        train(pytester.path / name, split)
    assert compared(pytester, "--msprobe-golden-rerun", "rerun").exit_code == 0


def test_activations_alone_cannot_be_compared(pytester):
    for name, split in (("golden", 1), ("target", 2)):
        train(pytester.path / name, split, what=["activations"])
    said = compared(pytester).result.stderr.str()
    assert "steps have 2 micro batches, those of the golden run 1, and only activations are monitored" in said


def test_losses_that_do_not_count_by_their_share_are_said_to_be(pytester):
    train(pytester.path / "golden", 1, what=["activations", "gradients"])
    train(pytester.path / "target", 2, what=["activations", "gradients"], share=False)
    assert "each loss must count by its share of the step" in compared(pytester).result.stderr.str()


def test_a_pass_more_over_the_same_data_leaves_activations_comparable(pytester):
    for name, passes in (("golden", 1), ("target", 2)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with msprobe_hooks.watch(model, optimizer, pytester.path / name, what=["activations", "gradients"]):
            for _ in range(4):
                batch = torch.randn(4, 8)
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                for _ in range(passes - 1):
                    model(batch)
                optimizer.step()
    checked = compared(pytester)
    assert np.isin("no series left the tolerance", checked.result.outlines)
    assert not any("micro batches" in line for line in checked.result.outlines if line.startswith("rank"))
