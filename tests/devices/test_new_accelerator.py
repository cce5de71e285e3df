"""A backend of torch's that the plugin knows nothing of: ``toy``, in C++, whose library the first test compiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import runs
from tests.support.dumps.dump_files import Json, forward, tensor
from tests.support.nightly import nightly_but
from tests.support.toy_accelerator import require_toy, run_script, variables

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

EXAMPLE = Path(__file__).parents[2] / "examples/check_a_dump/dump.json"

Check = Callable[..., runs.Checked]
Write = Callable[..., Path]

TRAINING = """
import sys
import torch
import torch_toy
import msprobe_hooks

torch.manual_seed(0)
first, last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
model = torch.nn.Sequential(first, torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Dropout(0.5), last).to("toy:1")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
start = [parameter.detach().clone() for parameter in model.parameters()]


def step():
    torch.manual_seed(1)
    for parameter, values in zip(model.parameters(), start):
        parameter.data.copy_(values)
    optimizer.state.clear()
    optimizer.zero_grad()
    with torch.autocast("toy", torch.bfloat16):
        loss = model(torch.randn(16, 8).to("toy:1") + torch.zeros(8, device="toy:1")).square().mean()
    loss.backward()
    optimizer.step()
    bits = [parameter.detach().cpu().view(torch.int32).sum().item() for parameter in model.parameters()]
    return bits, torch.toy.default_generators[1].get_state().sum().item()
"""


@pytest.fixture
def cards(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give processes that this test starts the two cards of ``toy``."""
    require_toy()
    for name, value in variables().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def check(cards: None, pytester: pytest.Pytester) -> Check:
    """Run pytest in a process of its own, and read its JUnit file."""

    def run(*arguments: str) -> runs.Checked:
        return runs.check(pytester, *arguments, apart=True)

    return run


def calls(*names: str, dtype: str = "float32") -> Json:
    """Return a dump of functions of one tensor, each called once."""
    x = tensor(4, 8, low=0.1, high=1.0, dtype=dtype)
    return {f"Torch.{name}.0.forward": forward(x) for name in names}


@pytest.mark.parametrize(
    "arguments",
    nightly_but(
        [
            ["--msprobe-device=toy", "-n", "auto"],
            ["--msprobe-device=accelerator", "-p", "torch_toy", "-n", "2"],
            ["--msprobe-device=auto", "-p", "torch_toy"],
            ["--msprobe-device=toy:1", "--msprobe-isolate"],
        ],
        ["--msprobe-device=toy", "-n", "auto"],
        ["--msprobe-device=toy:1", "--msprobe-isolate"],
    ),
    ids=" ".join,
)
def test_a_recorded_step_passes_on_the_cards(check: Check, arguments: list[str]) -> None:
    checked = check(f"--msprobe-dump={EXAMPLE}", *arguments)
    assert checked.exit_code == 0, checked.output
    assert [*checked.outcomes.values()].count("passed") == 362
    used = {case.properties["msprobe.device"] for case in checked.cases.values()}
    assert used == ({"toy:0", "toy:1"} if "-n" in arguments else {"toy:1"} if "toy:1" in arguments[0] else {"toy:0"})


def test_an_operator_that_is_wrong_fails_alone(
    check: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FAULTS", "exp=wrong,tanh=wrong")
    checked = check(f"--msprobe-dump={write_dump(calls('exp', 'tanh', 'sin'))}", "--msprobe-device=toy")
    assert checked.wrong == {"Torch.exp.0.forward", "Torch.tanh.0.forward"}
    assert "1 of 32 elements wrong" in checked.cases["Torch.tanh.0.forward"].text


def test_an_operator_that_the_backend_has_not_is_skipped_and_never_passes(
    check: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FALLBACK", "0")
    checked = check(f"--msprobe-dump={write_dump(calls('exp', 'tanh'))}", "--msprobe-device=toy")
    assert checked.outcomes == {"Torch.exp.0.forward": "passed", "Torch.tanh.0.forward": "skipped"}
    said = checked.cases["Torch.tanh.0.forward"].text
    assert (
        "the device does not implement this API for these dtypes: NotImplementedError: Could not run 'aten::tanh"
        in said
    )


def test_an_operator_that_the_cpu_computes_for_the_card_passes_with_weak_evidence(
    check: Check, write_dump: Write
) -> None:
    checked = check(f"--msprobe-dump={write_dump(calls('exp', 'tanh'))}", "--msprobe-device=toy")
    assert "1 passed with weak evidence: the card has no aten::tanh.out: computed by the CPU" in checked.output


def test_a_dtype_that_the_card_lacks_is_skipped(
    check: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FLOAT64", "0")
    dump = write_dump(calls("exp", dtype="float64") | {"Torch.sin.0.forward": forward(tensor(4, 8))})
    checked = check(f"--msprobe-dump={dump}", "--msprobe-device=toy")
    assert checked.outcomes == {"Torch.exp.0.forward": "skipped", "Torch.sin.0.forward": "passed"}
    assert "toy has no torch.float64" in checked.cases["Torch.exp.0.forward"].text


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kills", "crash"),
        ("loses-card", "Afterwards, device toy:0 no longer works: RuntimeError: toy: the card is lost"),
    ],
)
def test_a_card_that_is_lost_fails_one_record_and_the_others_get_a_new_process(
    fault: str, said: str, check: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FAULTS", f"cos={fault}")
    dump = write_dump(calls("exp", "cos", "sin"))
    checked = check(f"--msprobe-dump={dump}", "--msprobe-device=toy", "--msprobe-isolate")
    assert checked.wrong == {"Torch.cos.0.forward"}
    assert said in checked.cases["Torch.cos.0.forward"].text
    assert checked.outcomes["Torch.sin.0.forward"] == "passed"


def test_a_recording_on_the_card_changes_no_bit_and_passes_there(check: Check, pytester: pytest.Pytester) -> None:
    recording = """
print(repr(step()))
for task in ("statistics", "tensor"):
    with msprobe_hooks.record(task, level="mix", task=task, model=model):
        print(repr(step()))
"""
    plain, statistics, tensors = run_script(TRAINING + recording).splitlines()
    assert plain == statistics == tensors
    folder = pytester.path / "tensor/step0/rank"
    data = json.loads((folder / "dump.json").read_text())["data"]
    assert data["Tensor.to.0.forward"]["input_args"][1] == {"type": "str", "value": "toy:1"}
    summaries = json.loads((pytester.path / "statistics/step0/rank/dump.json").read_text())["data"]
    out, same = (each["Functional.layer_norm.0.forward"]["output"][0] for each in (data, summaries))
    assert {key: out[key] for key in ("Max", "Min", "Mean", "Norm")} == {
        key: same[key] for key in ("Max", "Min", "Mean", "Norm")
    }
    checked = check("--msprobe-dump=tensor", "--msprobe-device=toy:1")
    assert checked.exit_code == 0, checked.output
    assert set(checked.outcomes.values()) == {"passed"}


def test_a_recording_of_the_card_is_checked_where_its_backend_is_not(check: Check, pytester: pytest.Pytester) -> None:
    run_script(f"{TRAINING}\nwith msprobe_hooks.record('dump', task='tensor'):\n    step()\n")
    checked = check("--msprobe-dump=dump", "--msprobe-device=cpu")
    assert checked.exit_code == 0, checked.output
    assert set(checked.outcomes.values()) == {"passed"}


def test_calls_are_judged_on_the_card_while_the_program_runs(cards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FAULTS", "tanh=wrong")
    script = """
import warnings
import torch, torch_toy, pytest_msprobe
x = torch.linspace(0.1, 1, 32).to("toy:1")
with warnings.catch_warnings(record=True) as said, pytest_msprobe.live():
    x.exp(), x.tanh()
print(*(each.message for each in said), sep="\\n")
"""
    (found,) = run_script(script).splitlines()
    assert found.startswith("Tensor.tanh.0.forward: output.0: 1 of 32 elements wrong")
