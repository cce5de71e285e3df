"""A step that spells its arithmetic in every way, recorded by us and, before, by two versions of msprobe.

The model and the stored dumps are those of ``benchmarks/roundtrip``; every difference has its reason in
``docs/from-msprobe.md``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from msprobe_hooks import record
from tests.corpus import families

ROOT = Path(__file__).parents[2]
VERSIONS = ("26.2.0", "1.2.2")

# Recorded by 1.2.2 in the place of the operator that calls it: ``2 ** x``, ``2 % x``, ``x // 2``.
INSIDE_AN_OPERATOR = ("Torch.pow.", "Torch.remainder.", "Torch.floor_divide.")


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Our records of the step, by name."""
    path = tmp_path_factory.mktemp("round-trip") / "d"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    state = torch.get_rng_state()
    try:
        families.seed(families.MODEL_SEED)
        model, loss_of = families.FAMILIES["spellings"]()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        families.seed(families.STEP_SEED)
        with record(path, "mix", model=model):
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
    return json.loads((path / "step0" / "rank" / "dump.json").read_text())["data"]


@pytest.fixture(params=VERSIONS)
def peers(request):
    """What msprobe recorded of the step, under the names that its records have here."""
    data = json.loads((ROOT / "tests" / "data" / "round_trip" / f"spellings-{request.param}" / "dump.json").read_text())
    found = {}
    for name, body in data["data"].items():
        if not name.startswith(INSIDE_AN_OPERATOR):
            found[re.sub(r"^Torch\.norm\.", "Torch.linalg.norm.", name)] = body
    return found


needs_positions = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="before Python 3.11 nothing tells 2 + x from x + 2"
)
needs_this_optimizer = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="the optimizer's own calls differ between versions of torch"
)

pytestmark = [needs_positions, needs_this_optimizer]


def described(value):
    """Return a recorded value with tensors reduced to what they are."""
    if isinstance(value, list):
        return [described(item) for item in value]
    if isinstance(value, dict) and "shape" in value:
        return value["dtype"], tuple(value["shape"]), value["requires_grad"]
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    return value


def tensors(value):
    if isinstance(value, dict) and "shape" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def test_each_of_its_records_is_here(ours, peers):
    assert [name for name in peers if name not in ours] == []


def test_forward_records_are_in_its_order(ours, peers):
    theirs = [name for name in peers if ".forward" in name]
    assert [name for name in ours if name in set(theirs)] == theirs


def test_arguments_and_outputs_are_the_same(ours, peers):
    for name, body in peers.items():
        if ".forward" in name:
            for key in body:
                assert described(ours[name][key]) == described(body[key]), (name, key)


def test_forward_statistics_are_the_same(ours, peers):
    for name, body in peers.items():
        for part in body if ".forward" in name else ():
            for mine, theirs in zip(tensors(ours[name][part]), tensors(body[part]), strict=True):
                for key in ("Max", "Min", "Mean", "Norm"):
                    if theirs[key] is not None:
                        assert mine[key] == pytest.approx(theirs[key], rel=1e-4, abs=1e-5), (name, part, key)


def test_gradients_that_arrive_are_the_same(ours, peers):
    for name, body in peers.items():
        if ".backward" in name:
            for mine, theirs in zip(tensors(ours[name]["input"]), tensors(body["input"]), strict=False):
                assert mine["Norm"] == pytest.approx(theirs["Norm"], rel=1e-4, abs=1e-6), name
