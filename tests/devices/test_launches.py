"""What recording and checking ask of a card, counted by the accelerator ``toy``: kernels, transfers and waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import runs
from tests.support.dumps.dump_files import Json, forward, tensor
from tests.support.toy_accelerator import require_toy, run_script, variables

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

# Kernels by which a tensor of this kind is measured: at most so many.
MOST = {
    "torch.float32": 3,
    "torch.bfloat16": 3,
    "torch.float64": 3,
    "torch.int64": 4,
    "torch.bool": 2,
    "torch.complex64": 4,
    "torch.float8_e4m3fn": 4,
    "expanded": 4,
    "one element": 2,
}
MEASURED = """
import json, torch, torch_toy
from msprobe_hooks.torch.statistics import fetch, measure

values = torch.randn(200, 200)
kinds = [values, values.bfloat16(), values.double(), values.long(), values > 0, values.to(torch.complex64)]
there = {str(each.dtype): each.to("toy") for each in [*kinds, values.to(torch.float8_e4m3fn)]}
there["expanded"] = values.to("toy").expand(4, 200, 200)
there["one element"] = torch.ones(1).to("toy")
for name, tensor in there.items():
    torch.toy.take_counts()
    measure(tensor)
    print(json.dumps([name, torch.toy.take_counts()]))
"""

# More records than a host writes at a time; the timer, which would ask for their numbers, sleeps.
RECORDED = """
import json, torch, torch_toy
import msprobe_hooks
from msprobe_hooks.recording.recorder import Recorder

Recorder.flush_seconds = 3600
x = torch.ones(8, 8).to("toy")
with msprobe_hooks.record("dump"):
    torch.toy.take_counts()
    for _ in range(1500):
        torch.tanh(x)
    print(json.dumps(torch.toy.take_counts()))
print(json.dumps(torch.toy.take_counts()))
"""

COUNTING = """
import json, pytest, torch

found = {}

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    torch.toy.take_counts()
    result = yield
    found[item.name] = torch.toy.take_counts()
    return result

def pytest_sessionfinish(session):
    (session.config.rootpath / "counts.json").write_text(json.dumps(found))
"""


@pytest.fixture
def cards(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give processes that this test starts the two cards of ``toy``."""
    require_toy()
    for name, value in variables().items():
        monkeypatch.setenv(name, value)


def test_a_tensor_is_measured_by_few_kernels_and_without_waiting() -> None:
    counts = dict(map(json.loads, run_script(MEASURED).splitlines()))
    assert counts.keys() == MOST.keys()
    assert {name: found for name, found in counts.items() if sum(found.values()) > MOST[name]} == {}
    assert {name for name, found in counts.items() if found.keys() & {"to host", "to card", "waits"}} == set()


def test_nothing_waits_for_the_card_before_a_step_ends(pytester: pytest.Pytester) -> None:
    within, after = map(json.loads, run_script(RECORDED).splitlines())
    # The input is measured once.
    assert within == {"tanh": 1500, "aminmax": 1501, "sum": 1501, "linalg_vector_norm": 1501}
    assert after == {"cat": 1, "to host": 1, "waits": 1}
    data = json.loads(next((pytester.path / "dump").rglob("dump.json")).read_text())["data"]
    assert len(data) == 1500
    [most] = {record["output"][0]["Max"] for record in data.values()}
    assert most == pytest.approx(0.7615942)


def test_a_record_is_checked_by_one_transfer_for_each_of_its_tensors(
    pytester: pytest.Pytester, write_dump: Callable[..., Path]
) -> None:
    inputs, output = [tensor(*shape, requires_grad=True) for shape in ((4, 8), (3, 8), (3,))], [tensor(4, 3)]
    records: Json = {}
    # The first call of a kind is made again, to see which of its operators the card lacks.
    for number in range(2):
        records[f"Functional.linear.{number}.forward"] = forward(*inputs, output=output)
        records[f"Functional.linear.{number}.backward"] = {"input": output, "output": inputs}
    pytester.makeconftest(COUNTING)
    arguments = (f"--msprobe-dump={write_dump(records)}", "--msprobe-device=toy", "-p", "torch_toy")
    checked = runs.check(pytester, *arguments, apart=True)
    assert checked.exit_code == 0, checked.output
    counts = json.loads((pytester.path / "counts.json").read_text())
    forth, back = (counts[f"Functional.linear.1.{direction}"] for direction in ("forward", "backward"))
    assert (forth["to card"], forth["to host"]) == (3, 1)
    assert (back["to card"], back["to host"]) == (1, 3)
