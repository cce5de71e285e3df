"""``pytest-msprobe replay``: the verdict on saved cases, and what it says of those that it cannot use."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.commands.main import main
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.strides import has_gaps
from pytest_msprobe.errors import CaseError
from pytest_msprobe.extensions.replay.bench import Bench, replay_case
from pytest_msprobe.modes.check.save_case import save_case
from pytest_msprobe.modes.check.saved_case import Case, read_case
from pytest_msprobe.storage.limits import SaveOptions
from pytest_msprobe.storage.tensors import describe, write_tensors
from tests.corpus.cards import Card, card, to_bits
from tests.corpus.fault import VariantDevice
from tests.support.dumps.dump_files import SOFTMAX, forward, tensor, three_calls, value
from tests.support.replays.devices import UNSTEADY

RECORD = "Functional.softmax.0.forward"

#: Written by the first version that saved cases; every later one must read it.
FORMAT_1 = Path(__file__).parents[2] / "data" / "cases" / "format-1"


@pytest.fixture
def case(save: Any) -> Path:
    return Path(save(SOFTMAX, RECORD).folder)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with the device that the saved cases failed on."""
    (tmp_path / "one_off_device.py").write_text(
        textwrap.dedent("""
        from tests.support.replays.devices import OneOff

        def pytest_msprobe_register_devices(registry):
            registry.add(OneOff())
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "one_off_device"


def edit(case: Path, change: Callable[[Any], None]) -> None:
    fields = json.loads((case / "case.json").read_text())
    change(fields)
    (case / "case.json").write_text(json.dumps(fields))


def test_a_case_fails_again_with_the_text_of_a_failing_item(
    case: Path, plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(case), "--device", "one-off", "-p", plugin]) == 1
    out = capsys.readouterr().out
    assert "on simulated card 0" in out
    assert f"{RECORD} is wrong" in out
    assert "output.0 torch.float32 (4, 8): fail by benchmark" in out
    assert "at index (0, 0)" in out
    assert f"pytest-msprobe replay {case} --device one-off -p {plugin}" in out


def test_a_case_leads_back_to_the_record_that_it_was_saved_of(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["replay", str(case), "--device", "cpu"])
    dump = json.loads((case / "case.json").read_text())["dump"]
    assert capsys.readouterr().out.splitlines()[-1] == f"recorded in {dump}::{RECORD}"


def test_a_case_passes_on_a_device_that_is_right(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(case), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert f"{RECORD}: pass by benchmark" in out
    assert "it was fail by benchmark on simulated card 0" in out


def test_a_folder_judges_all_of_its_cases(
    save: Any, case: Path, plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(SOFTMAX, "Functional.softmax.0.backward")
    assert main(["replay", str(case.parent), "--device", "one-off", "-p", plugin]) == 1
    out = capsys.readouterr().out
    assert "Functional.softmax.0.backward is wrong" in out
    assert "2 cases: 2 wrong" in out


def test_one_unusable_case_costs_no_other(save: Any, case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Path(save(SOFTMAX, "Functional.softmax.0.backward").folder)
    (broken / "case.json").write_text("{")
    assert main(["replay", str(case.parent), "--device", "cpu"]) == 2
    reported = capsys.readouterr()
    assert "2 cases: 1 not judged, 1 right" in reported.out
    assert f"{broken / 'case.json'}: the JSON ends too early" in reported.err


def test_another_policy_may_judge(case: Path, plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["replay", str(case), "--device", "one-off", "-p", plugin]
    assert main([*arguments, "--policy", "msprobe-1.2"]) == 1
    assert main([*arguments, "--policy", "gone.yaml"]) == 2
    assert "gone.yaml" in capsys.readouterr().err


def test_a_case_is_judged_in_the_math_mode_that_it_failed_in(replay: Any, limits: SaveOptions) -> None:
    class Tf32(VariantDevice):
        name = "tf32-card"

    device = Tf32(card("card", "", Card(to_bits(10), to_bits(10)).kernel, apis="", matmul="tf32"))
    plugin = ModuleType("plugin")
    vars(plugin)["pytest_msprobe_register_devices"] = lambda registry: registry.add(device)
    record = "Functional.linear.0.forward"
    setup = ReplayConfig(device, Policy.load("default"), TorchFramework(), math_mode="strict")
    case = save_case(*replay({record: forward(tensor(30, 256), tensor(40, 256))}, record, setup), limits)
    folder = Path(case.folder)
    judged = [Bench("tf32-card", None, None, [plugin], mode).judge(folder) for mode in (None, "strict", "auto")]
    assert [each.result.verdict.outcome for each in judged] == ["fail", "fail", "pass"]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["nowhere"], "nowhere: no saved case there"),
        (["CASE", "--device", "tpu"], "unknown device 'tpu'; known are"),
        (["CASE", "--device", "cpu:7"], "index 7 does not exist"),
        (["CASE", "-p", "no_such_module"], "-p no_such_module"),
    ],
)
def test_a_wrong_argument_is_one_error(
    case: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reported: str
) -> None:
    assert main(["replay", *(str(case) if word == "CASE" else word for word in arguments)]) == 2
    assert reported in capsys.readouterr().err


def test_a_case_does_not_say_which_file_is_read_as_a_policy(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("password: hunter2")
    edit(case, lambda fields: fields.update(policy=str(policy)))
    assert main(["replay", str(case), "--device", "cpu"]) == 2
    reported = capsys.readouterr().err
    assert f"was judged by the policy '{policy}', which is not a built-in one; pass its file as --policy" in reported
    assert "hunter2" not in reported
    policy.write_text("rules: [{standard: thousandth}]")
    assert main(["replay", str(case), "--device", "cpu", "--policy", str(policy)]) == 0


def test_a_message_about_a_case_shows_no_character_that_a_terminal_would_obey(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(case, lambda fields: fields.update(framework="\x1b[2J"))
    main(["replay", str(case), "--device", "cpu"])
    assert "\x1b" not in "".join(capsys.readouterr())


def test_a_case_that_the_device_cannot_run_is_no_pass(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(case, lambda fields: fields.update(record="Functional.no_such_function.0.forward"))
    assert main(["replay", str(case), "--device", "cpu"]) == 2
    assert "this torch has no such API" in capsys.readouterr().out


# What may be wrong with a case ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 9, 200])
@pytest.mark.parametrize("name", ["case.json", "tensors.safetensors"])
def test_a_truncated_file_is_reported(case: Path, name: str, size: int, capsys: pytest.CaptureFixture[str]) -> None:
    (case / name).write_bytes((case / name).read_bytes()[:size])
    assert main(["replay", str(case), "--device", "cpu"]) == 2
    assert str(case / name) in capsys.readouterr().err


@pytest.mark.parametrize("name", ["case.json", "tensors.safetensors"])
def test_a_missing_file_is_reported(case: Path, name: str) -> None:
    (case / name).unlink()
    with pytest.raises(CaseError, match=name.replace(".", r"\.")):
        Bench("cpu").judge(case)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b'{"task": "statistics", "data": {}}',
        b'{"msprobe_case": "1"}',
        b"\x80\x04",
        b"[" * 5000,
    ],
)
def test_a_foreign_file_is_no_case(case: Path, content: bytes) -> None:
    (case / "case.json").write_bytes(content)
    with pytest.raises(CaseError, match=r"not a saved case|not valid JSON|the JSON ends too early|nested too deeply"):
        read_case(case)


def test_a_newer_case_asks_for_an_update(case: Path) -> None:
    edit(case, lambda fields: fields.update(msprobe_case=2, tensors="another way"))
    with pytest.raises(CaseError, match=r"newer version \(format 2\); update pytest-msprobe"):
        read_case(case)


def test_the_first_format_is_still_read() -> None:
    case = read_case(FORMAT_1)
    assert case.msprobe_case == 1
    assert case.result.verdict.outcome == "fail"
    assert Bench("cpu").judge(FORMAT_1).result.verdict.outcome == "pass"


def test_fields_that_a_later_version_of_the_format_adds_do_no_harm(case: Path) -> None:
    edit(case, lambda fields: fields.update(added_later={"x": 1}))
    assert Bench("cpu").judge(case).result.verdict.outcome == "pass"


def test_fields_that_may_be_missing_may_be_missing(case: Path) -> None:
    edit(case, lambda fields: [fields.pop(name) for name in ("level", "settings", "backward", "left_out", "inputs")])
    assert Bench("cpu").judge(case).result.verdict.outcome == "pass"


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (lambda case: case.pop("tensors"), "tensors"),
        (lambda case: case.update(seed="x"), "seed"),
        (lambda case: case.update(record="softmax"), "softmax"),
        (lambda case: case["forward"].update(input_args="x"), "input_args"),
        (lambda case: case["tensors"].pop("args.0"), "args.0"),
        (lambda case: case["tensors"]["args.0"].update(shape=[8, 8]), "but was saved as"),
        (lambda case: case["tensors"]["args.0"].update(dtype="torch.int32"), "but was saved as"),
        (lambda case: case["tensors"]["args.0"].update(dtype="torch.complex64"), "but was saved as"),
        (lambda case: case["tensors"]["args.0"].update(stride=[1]), "cannot have strides"),
        (lambda case: case["tensors"]["args.0"].update(stride=[-8, 1]), "cannot have strides"),
        (lambda case: case["tensors"]["args.0"].update(stride=[2**60, 1]), "more than is free"),
        (lambda case: case["tensors"]["args.0"].update(stride=[2**70, 1]), "stride"),
    ],
    ids=range(12),
)
def test_a_case_whose_parts_do_not_fit_is_reported(
    case: Path, change: Callable[[Any], None], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(case, change)
    assert main(["replay", str(case), "--device", "cpu"]) == 2
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize(
    "record", ["Torch.load.0.forward", "Torch.../../x.0.forward", "Torch.__class__.0.forward", "Torch.{0}%s.0.forward"]
)
def test_a_hostile_name_runs_nothing(case: Path, record: str, capsys: pytest.CaptureFixture[str]) -> None:
    edit(case, lambda fields: fields.update(record=record))
    assert main(["replay", str(case), "--device", "cpu"]) == 2
    assert record in capsys.readouterr().out


def test_a_name_cannot_steer_the_terminal(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(case, lambda fields: fields.update(record="Torch.\x1b[2J\u202e.0.forward"))
    assert main(["replay", str(case), "--device", "cpu"]) == 2
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert r"\x1b[2J" in out


def test_a_tensors_file_that_is_a_pickle_is_not_loaded(case: Path) -> None:
    torch.save({"args.0": torch.zeros(4, 8)}, case / "tensors.safetensors")
    with pytest.raises(CaseError, match="cannot be read"):
        Bench("cpu").judge(case)


def test_a_case_may_be_named_by_its_file_and_moved(case: Path, tmp_path: Path) -> None:
    moved = Path(shutil.move(case, tmp_path / "elsewhere"))
    assert main(["replay", str(moved / "case.json"), "--device", "cpu"]) == 0


def test_infinite_margins_survive(case: Path) -> None:
    edit(case, lambda fields: fields["result"]["verdict"].update(margin="inf"))
    found: Case = read_case(case)
    assert found.result.verdict.margin == float("inf")
    assert msgspec.to_builtins(found.result)["verdict"]["outcome"] == "fail"


HEADS = tensor(2, 4, 6, 8, requires_grad=True)
ATTENTION = {
    "Functional.scaled_dot_product_attention.0.forward": forward(HEADS, HEADS, HEADS, dropout_p=value(0.3)),
    "Functional.scaled_dot_product_attention.0.backward": {"input": [HEADS], "output": [HEADS] * 3},
}


@pytest.mark.parametrize("records", [SOFTMAX, ATTENTION], ids=["softmax", "dropout inside"])
def test_a_saved_case_fails_as_the_record_did_and_passes_elsewhere(
    save: Any, replay: Any, setup: ReplayConfig, records: Any
) -> None:
    for record in records:
        folder = Path(save(records, record).folder)
        case = read_case(folder)
        again = replay_case(case, folder, setup)
        assert again.verdict == case.result.verdict == replay(records, record)[1].verdict
        assert replay_case(case, folder, replace(setup, device=CpuDevice())).verdict.outcome == "pass"


def test_an_input_that_was_not_contiguous_reaches_the_device_as_it_was(save: Any, setup: ReplayConfig) -> None:
    folder = Path(save(SOFTMAX, "Functional.softmax.0.forward").folder)
    case = read_case(folder)
    x = torch.randn(8, 16)[:, ::4].t()
    write_tensors(folder / "tensors.safetensors", {"args.0": x})
    case = msgspec.structs.replace(case, tensors={"args.0": describe(x)})
    seen = []

    class Watching(type(setup.device)):  # type: ignore[misc]
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            seen.append(args[0])
            return func(*args, **kwargs)

    assert replay_case(case, folder, replace(setup, device=Watching())).verdict.outcome == "pass"
    assert seen[0].stride() == x.stride()
    assert has_gaps(seen[0])
    assert torch.equal(seen[0], x)


# The first result depends on the number of rows.
DEPENDENT = """
if record == 'Functional.softmax.0.forward' and len(result) > 1:
    result = result * (1 + 2**-20)
"""


@pytest.mark.parametrize(
    ("device", "option", "by"),
    [(UNSTEADY, "--msprobe-repeat=3", "determinism"), (DEPENDENT, "--msprobe-batch-invariant", "batch_invariance")],
)
def test_a_saved_case_runs_as_often_and_on_the_same_parts_as_its_record_did(
    device: str, option: str, by: str, write_dump: Any, make_device: Any, check: Any, capsys: Any
) -> None:
    make_device(device)
    write_dump(three_calls())
    check("--msprobe-device=faulty", "--msprobe-dump=dump.json", option, "--msprobe-save-failures=kept")
    assert main(["replay", "kept", "--device", "cpu"]) == 0
    assert f"it was fail by {by}" in capsys.readouterr().out
