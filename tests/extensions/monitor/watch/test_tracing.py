"""What compilers and tracers of torch run is not monitored."""

from __future__ import annotations

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from msprobe_hooks import watch
from tests.support.dumps.watched import activation_rows

X = torch.ones(4, 8)


def test_what_is_traced_is_not_monitored(tmp_path):
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, tmp_path, what=["activations"]):
        make_fx(lambda x: net(x))(2 * X)
        net(X).sum().backward()
        optimizer.step()
    rows = activation_rows(tmp_path)
    assert {row["micro_step"] for row in rows} == {"0"}
    assert len(rows) == len({row["name"] for row in rows})
