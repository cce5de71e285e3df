"""The same training steps, recorded by us and, before, by msprobe 26.2.0: names, order, arguments, statistics.

What differs on purpose is named here and nowhere else:

* msprobe hides calls that move data (FOCUS), does not see ``VF.lstm`` or what ``backward`` calls: ours has more
* its backward records hold what the last autograd node saw, ours the gradients of all inputs of the call
* parameter gradients are written when they arrive, relative to other gradient records this order is not the same
* integers have a mean and a norm here
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import record

DUMPS = Path(__file__).parents[1] / "data" / "dumps"

ONLY_OURS = ("VF.lstm", "Torch.ones_like", "Torch.zeros_like", "Torch.flatten", "Tensor.flatten", "Tensor.__getitem__")
COMPOSITE = ("Functional.linear", "Functional.cross_entropy")


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.drop = nn.Dropout(0.1)
        self.rnn = nn.LSTM(16, 24, 2, batch_first=True)
        self.gate = nn.Linear(24, 24)
        self.mix = nn.Linear(24, 24)
        self.head = nn.Linear(24, 40)

    def forward(self, ids):
        h, _ = self.rnn(self.drop(self.embed(ids)))
        g = torch.sigmoid(self.gate(h))
        m = torch.tanh(self.mix(h))
        return self.head(g * m + (1 - g) * h)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [4, 4, 8, 16, 32]
        for place in range(4):
            first = BasicBlock(widths[place], widths[place + 1], 2 if place else 1)
            layer = nn.Sequential(first, BasicBlock(widths[place + 1], widths[place + 1], 1))
            setattr(self, f"layer{place + 1}", layer)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def seed(value):
    torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value)


def lstm_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def resnet_loss(model, x):
    return F.cross_entropy(model(x), torch.tensor([0, 4]))


# CPUs draw the same numbers and sum them in different orders. Eighteen layers, each normalised by the statistics of two
# images, make 1e-3 of the last bits, which switch a ReLU here and there: the greatest gradient, one element, moves by
# percents, and its square in AdamW twice as far.
TOLERANCES = {"lstm-mix": 1e-5, "lstm-L0": 1e-5, "resnet18": 5e-2}

CASES = {
    "lstm-mix": ("mix", Gated, lambda: torch.randint(0, 40, (3, 9)), lstm_loss, 3.6607754230499268),
    "lstm-L0": ("L0", Gated, lambda: torch.randint(0, 40, (3, 9)), lstm_loss, 3.6607754230499268),
    "resnet18": ("L1", ResNet18, lambda: torch.randn(2, 3, 32, 32), resnet_loss, 2.7269623279571533),
}


@pytest.fixture(params=CASES)
def both(request, tmp_path, records):
    """Our records and msprobe's of one step, and by which share their numbers may differ."""
    level, family, data, loss_of, loss = CASES[request.param]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seed(20240917)
        model, batch = family(), data()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        seed(20240918)
        with record(tmp_path / "d", level, model=model):
            optimizer.zero_grad()
            found = loss_of(model, batch)
            found.backward()
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
    tolerance = TOLERANCES[request.param]
    assert found.item() == pytest.approx(loss, rel=tolerance), "the recorded model has been remade"
    peers = json.loads((DUMPS / request.param / "dump.json").read_text())["data"]
    return records(tmp_path / "d"), peers, tolerance


def tensors(value, path=""):
    if isinstance(value, dict) and "shape" in value:
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{path}.{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from tensors(item, f"{path}.{place}")


def arguments(body):
    return json.loads(
        json.dumps([body.get("input_args"), body.get("input_kwargs")]),
        object_hook=lambda item: tuple(item["shape"]) if "shape" in item else item,
    )


def test_none_of_its_records_is_missing(both):
    ours, peers, _ = both
    assert [name for name in peers if name not in ours] == []


def test_records_that_it_lacks_are_of_known_kinds(both):
    ours, peers, _ = both
    assert [name for name in ours if name not in peers and not name.startswith(ONLY_OURS)] == []


def test_records_come_in_its_order(both):
    ours, peers, _ = both
    mine = [name for name in ours if name in peers and (name.startswith("Module") is False or ".forward." in name)]
    theirs = [name for name in peers if name in mine]
    assert mine == theirs


def test_arguments_are_the_same(both):
    ours, peers, _ = both
    for name, body in peers.items():
        if "forward" in name:
            assert arguments(ours[name]) == arguments(body), name


def test_statistics_are_the_same(both):
    ours, peers, tolerance = both
    for name, body in peers.items():
        if "backward" in name and name.startswith(COMPOSITE):
            continue
        mine, theirs = dict(tensors(ours[name])), dict(tensors(body))
        if "backward" in name:
            mine, theirs = dict(enumerate(mine.values())), dict(enumerate(theirs.values()))
        assert mine.keys() == theirs.keys(), name
        for path, entry in theirs.items():
            assert [mine[path][key] for key in ("dtype", "shape", "requires_grad")] == [
                entry[key] for key in ("dtype", "shape", "requires_grad")
            ]
            # Adam's first step divides each gradient by its own size: the last bits of tiny gradients, which differ
            # between CPUs, become visible in the parameters that it updates.
            looseness = 100 if name.startswith("Tensor.addcdiv_.") else 1
            scale = looseness * (abs(entry["Norm"] or 0) + 1e-9)
            for key in ("Max", "Min", "Mean", "Norm"):
                if entry[key] is not None:
                    assert mine[path][key] == pytest.approx(entry[key], rel=tolerance, abs=tolerance / 10 * scale), (
                        name,
                        path,
                        key,
                    )
