"""``tokens.jsonl``: which request each row of a forward pass belongs to."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import msprobe_hooks
from msprobe_hooks.dump.tokens import FILE, PassTokens
from pytest_msprobe.extensions.inference.passes import read_tokens


def test_noted_tokens_are_in_the_folder_of_their_step(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2))
    with msprobe_hooks.record(tmp_path / "d", model=model, level="L0") as session:
        session.note_tokens(["a", 7], torch.tensor([2, 1]), starts=[0, 4], logprobs=[None, -0.5, -1.0])
        model(torch.ones(3, 2))
        session.step()
        model(torch.ones(3, 2))
    assert read_tokens(tmp_path / "d/step0/rank") == [
        PassTokens(["a", "7"], [2, 1], starts=[0, 4], logprobs=[None, -0.5, -1.0])
    ]
    assert read_tokens(tmp_path / "d/step1/rank") == []


def test_tokens_that_do_not_fit_together_are_refused(tmp_path):
    refused = pytest.raises(msprobe_hooks.ConfigError, match=re.escape("tokens: 1 lengths for 2 requests"))
    with msprobe_hooks.record(tmp_path / "d") as session, refused:
        session.note_tokens(["a", "b"], [1])


def test_a_damaged_line_is_refused_with_its_number(tmp_path):
    (tmp_path / FILE).write_text('{"requests":["a"],"lengths":[1]}\n{"requests":["a"],"lengths":[-1]}\n')
    with pytest.raises(msprobe_hooks.DumpError, match="line 2: a length that is no number of tokens; delete the file"):
        read_tokens(tmp_path)


@pytest.mark.parametrize("noted", [True, False])
def test_a_comparison_of_calls_says_that_it_leaves_out_the_noted_tokens(pytester, noted):
    for name in ("target", "golden"):
        with msprobe_hooks.record(pytester.path / name, level="L1") as session:
            torch.add(torch.ones(3), 1.0)
            if noted:
                session.note_tokens(["a"], [3], logprobs=[None, -0.5, -1.0])
    result = pytester.runpytest_inprocess("--msprobe-compare=target", "--msprobe-golden=golden")
    line = "not compared: noted tokens and their log probabilities, which --msprobe-match inference compares"
    assert (line in result.outlines) is noted
