"""Checking a dump from a program: the verdicts of the run, and what is said of wrong arguments."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks import DumpError
from pytest_msprobe import check_dump
from pytest_msprobe.errors import DeviceError, OptionError, UserError
from pytest_msprobe.run.options import read_options
from pytest_msprobe.run.session_needs import register_own
from tests.support.session_results import session_results

DUMP = Path(__file__).parents[2] / "examples" / "check_a_dump" / "dump.json"
ONLY = "softmax,Torch.mat*,rsqrt"


def test_results_are_those_of_the_run(pytester: pytest.Pytester) -> None:
    policy = pytester.path / "exact.yaml"
    policy.write_text("rules: [{standard: binary_consistency}]")
    arguments = ("--msprobe-device=cpu", f"--msprobe-policy={policy}", f"--msprobe-only={ONLY}", "--msprobe-seed=3")
    expected = session_results(pytester, f"--msprobe-dump={DUMP}", *arguments)
    found = {each.name: each for each in check_dump(DUMP, device="cpu", policy=str(policy), only=ONLY, seed=3)}
    assert [*found] == [*expected]
    assert {name: each.outcome for name, each in found.items()} == {name: x.outcome for name, x in expected.items()}
    assert Counter(each.outcome for each in found.values()).keys() >= {"pass", "fail"}
    for name, each in found.items():
        assert replace(each.result, seconds=0) == replace(expected[name], seconds=0)


def test_defaults_are_those_of_the_options(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfig()
    register_own(config)
    options = read_options(config)
    parameters = inspect.signature(check_dump).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name != "path"}
    assert defaults.pop("only") is None
    assert defaults.pop("device") == str(options.device)
    assert defaults == {name: getattr(options, name) for name in defaults}


def test_a_malformed_record_fails_alone(write_dump: Any, records: dict[str, Any]) -> None:
    first = next(iter(records))
    dump = write_dump({**records, first: {"input_args": 5}})
    outcomes = {each.name: each.outcome for each in check_dump(dump.parent, device="cpu")}
    assert outcomes.pop(first) == "fail"
    assert "pass" in outcomes.values()


def test_only_takes_a_list_of_patterns() -> None:
    names = {each.name.rpartition(".")[0] for each in check_dump(DUMP, device="cpu", only=["Functional.soft*", "ones"])}
    assert names == {"Functional.softmax.0", "Functional.softmax.1"}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": "missing.json"}, DumpError, r"missing.json: no such file; pass the dump.json"),
        ({"device": "gpu"}, DeviceError, "unknown device 'gpu'; known are auto, npu"),
        ({"device": "cpu:9"}, DeviceError, "index 9 does not exist"),
        ({"policy": "strict"}, OptionError, "policy 'strict': not a file, and not one of default"),
        ({"policy": "msprobe-26", "level": "L7"}, OptionError, "level='L7': not one of L0, L1, L2"),
        ({"real_data": "always"}, OptionError, "real_data='always': not one of auto, never"),
        ({"only": "no_such_api"}, OptionError, "dump.json: only='no_such_api': no record matches; names"),
    ],
)
def test_a_wrong_argument_is_an_error_before_the_first_record(
    arguments: dict[str, Any], error: type[UserError], text: str
) -> None:
    given = {"path": DUMP, "device": "cpu", **arguments}
    with pytest.raises(error, match=text):
        check_dump(**given)


def test_no_file_stays_open_or_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len([*Path("/proc/self/fd").iterdir()])
    checked = check_dump(DUMP, device="cpu", only="softmax")
    next(checked)
    del checked
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert [*tmp_path.iterdir()] == []
