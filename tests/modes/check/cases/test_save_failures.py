"""``--msprobe-save-failures`` through pytest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch  # noqa: F401 - for the reason that torch is loaded in conftest.py

from tests.support.runs import Checked

WRONG = "result = result + 1 if record == 'Functional.softmax.0.forward' else result"


@pytest.fixture
def saving(write_dump: Any, records: Any, make_device: Any, check: Any) -> Callable[..., Checked]:
    def run(*arguments: str, body: str = WRONG) -> Checked:
        make_device(body)
        dump = write_dump(records)
        found: Checked = check(
            "--msprobe-dump", dump, "--msprobe-device=faulty", "--msprobe-save-failures=kept", *arguments
        )
        return found

    return run


def cases(pytester: pytest.Pytester) -> list[Path]:
    return sorted((pytester.path / "kept").glob("*/case.json"))


def test_only_what_fails_is_saved_and_both_texts_say_where(saving: Any, pytester: pytest.Pytester) -> None:
    checked = saving()
    [case] = cases(pytester)
    assert checked.wrong == {"Functional.softmax.0.forward"}
    assert f"KiB): {case.parent}" in checked.cases["Functional.softmax.0.forward"].text
    assert f"1 saved in {pytester.path / 'kept'}" in checked.output
    assert json.loads(case.read_text())["settings"]["device"].startswith("simulated card 0")


def test_nothing_is_made_where_nothing_fails(saving: Any, pytester: pytest.Pytester) -> None:
    assert saving(body="").exit_code == 0
    assert not (pytester.path / "kept").exists()


@pytest.mark.slow
def test_workers_share_the_folder(saving: Any, pytester: pytest.Pytester) -> None:
    checked = saving("-n2", body="result = result + 1 if torch.is_tensor(result) else result")
    assert len(checked.wrong) == len(cases(pytester)) == 3
    assert "3 saved in" in checked.output


def test_what_finds_no_room_is_said(saving: Any, pytester: pytest.Pytester) -> None:
    checked = saving("-omsprobe_save_limit=1B")
    assert cases(pytester) == []
    assert "The failing case was not saved: its inputs take" in checked.cases["Functional.softmax.0.forward"].text
    assert "1 not saved: its inputs take" in checked.output


def test_a_folder_that_cannot_be_written_costs_no_verdict(saving: Any, pytester: pytest.Pytester) -> None:
    (pytester.path / "kept").mkdir()
    (pytester.path / "kept" / ".lock").mkdir()
    checked = saving()
    assert len(checked.cases) == 5
    assert "The failing case was not saved:" in checked.cases["Functional.softmax.0.forward"].text


def test_a_call_that_raises_is_saved_with_its_inputs(saving: Any, pytester: pytest.Pytester) -> None:
    saving(body="if 'index_select' in record: raise ValueError('no kernel')")
    [case] = cases(pytester)
    tensors = json.loads(case.read_text())["tensors"]
    assert {"args.0", "args.2", "golden.output.0"} <= set(tensors)
    assert not any(name.startswith("target") for name in tensors)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (
            ["-omsprobe_save_limit=1GiB"],
            "msprobe_save_limit has no effect without --msprobe-save-failures; pass --msprobe-save-failures DIR",
        ),
        (["--msprobe-save-failures=x", "-omsprobe_save_limit=much"], "expected a size"),
        (["--msprobe-save-failures=x", "-omsprobe_save_limit=1GB"], "expected a size"),
        (["--msprobe-save-failures=x", "-omsprobe_save_limit=1,2,3"], "expected a size"),
        (["--msprobe-save-failures=dump.json"], "not a directory"),
    ],
)
def test_a_wrong_option_is_one_usage_error(usage_error: Any, arguments: list[str], reported: str) -> None:
    assert reported in usage_error(*arguments)


def test_a_missing_extra_is_named(usage_error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "safetensors" else real(name))
    assert "pip install 'pytest-msprobe[cases]'" in usage_error("--msprobe-save-failures=kept")
