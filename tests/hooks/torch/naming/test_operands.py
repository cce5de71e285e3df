from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from msprobe_hooks import record

SETTINGS = SimpleNamespace(scale=0.5)
two = 2
TABLE = {"rate": 0.5}


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 0.5
        self.weight = nn.Parameter(torch.ones(3))

    def left(self, x):
        return self.scale * x

    def right(self, x):
        return x * self.scale

    def parameter(self):
        return self.weight * self.scale


def recorded(tmp_path, records, use):
    with record(tmp_path / "d"):
        use(torch.ones(3))
    (name,) = records(tmp_path / "d")
    return name.split(".")[1]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before Python 3.11 nothing tells 2 + x from x + 2")
@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda x: 2 + x, "__radd__"),
        (lambda x: x + 2, "__add__"),
        (lambda x: 0.5 * x, "__rmul__"),
        (lambda x: x * 0.5, "__mul__"),
        (lambda x: -0.5 * x, "__rmul__"),
        (lambda x: math.sqrt(2.0) * x, "__rmul__"),
        (lambda x: x * math.sqrt(2.0), "__mul__"),
        (lambda x: 2**-0.5 * x, "__rmul__"),
        (lambda x: SETTINGS.scale * x, "__rmul__"),
        (lambda x: x * SETTINGS.scale, "__mul__"),
        (lambda x: TABLE["rate"] * x, "__rmul__"),
        (
            lambda x: (
                math.pi  # on a line of its own
                * x
            ),
            "__rmul__",
        ),
        (lambda x: Scaled().left(x), "__rmul__"),
        (lambda x: Scaled().right(x), "__mul__"),
        (lambda _: Scaled().parameter(), "__mul__"),
    ],
)
def test_a_number_on_the_left_makes_the_operator_reflected(tmp_path, records, use, name):
    assert recorded(tmp_path, records, use) == name


def test_where_the_operands_cannot_be_known_the_plain_name_is_kept(tmp_path, records):
    use = eval("lambda x: 2 + x")
    assert recorded(tmp_path, records, use) == "__add__"


def test_looking_at_operands_runs_no_property(tmp_path, records):
    class Costly:
        reads = 0

        @property
        def scale(self):
            Costly.reads += 1
            return 0.5

    costly = Costly()
    recorded(tmp_path, records, lambda x: costly.scale * x)
    assert Costly.reads == 1


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda x: two > x, "__lt__"),
        (lambda x: two >= x, "__le__"),
        (lambda x: two < x, "__gt__"),
        (lambda x: two <= x, "__ge__"),
        (lambda x: x > 2, "__gt__"),
    ],
)
def test_a_comparison_is_named_as_the_tensor_sees_it(tmp_path, records, use, name):
    assert recorded(tmp_path, records, use) == name


def test_division_of_a_number_is_recorded_as_what_it_is_made_of(tmp_path, records):
    with record(tmp_path / "d"):
        2 / torch.ones(3)
    assert list(records(tmp_path / "d")) == ["Tensor.reciprocal.0.forward", "Tensor.__mul__.0.forward"]
