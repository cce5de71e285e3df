"""A model that ``torch.jit.script`` compiles, and that is fed."""

from __future__ import annotations

import pytest
import torch

from msprobe_hooks import feed, record
from tests.support.trainings.residual import model

# Torch warns of it from some version on.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

X = torch.ones(2, 4)


def test_a_scripted_model_runs_where_the_model_is_not_given(tmp_path, capsys):
    net = model()
    scripted = torch.jit.script(net)
    with torch.no_grad():
        with record(tmp_path / "d", "mix", task="tensor", model=net):
            expected = net(X)
        with feed(tmp_path / "d", ["*"], step=0):
            assert torch.equal(scripted(X), expected)
            assert torch.equal(net(X), expected)
    assert "not fed" not in capsys.readouterr().err
