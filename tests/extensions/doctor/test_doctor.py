"""What is reported of a machine, and of one on which something is half installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from msprobe_hooks.dump.reader import open_dump
from pytest_msprobe.commands.main import main
from pytest_msprobe.extensions.doctor.doctor_command import compiler_facts, package_facts, variable_facts
from pytest_msprobe.extensions.doctor.requirements import dump_facts, lacking_facts, probed
from tests.support.dumps.dump_files import forward, tensor, write_dump


def test_what_is_installed_is_reported_with_the_extras() -> None:
    facts = {fact.name: fact for fact in package_facts()}
    assert facts["pytest"].text == pytest.__version__
    assert facts["numpy"].state == "ok"
    assert "safetensors" in facts["[cases]"].text


def test_no_variable_is_reported_that_may_be_a_secret() -> None:
    facts = list(
        variable_facts({"OMP_NUM_THREADS": "4", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "MY_OMP_NUM_THREADS_KEY": "x"})
    )
    assert [(fact.name, fact.text) for fact in facts] == [("OMP_NUM_THREADS", "4")]


def test_a_compiler_that_cannot_be_run_is_broken_and_a_missing_one_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\necho 'cannot execute cc1plus' >&2\nexit 1\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "gone"))
    facts = {fact.name: fact for fact in compiler_facts()}
    assert facts["g++"].state == "broken"
    assert "cannot execute cc1plus" in facts["g++"].text
    assert facts["ninja"].state == "absent"
    assert facts["CANN"].state == "broken"


def test_the_files_that_a_dump_lacks_are_counted_and_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "dump_tensor_data").mkdir()
    (tmp_path / "dump_tensor_data" / "here.pt").touch()
    record = forward(tensor(2, data_name="here.pt"), tensor(2, dtype="float16", data_name="gone.pt"))
    path = write_dump(tmp_path, {"Torch.add.0.forward": record, "NPU.npu_swiglu.0.forward": record}, task="tensor")
    facts = {fact.name: fact for fact in dump_facts(open_dump(path))}
    assert facts["tensors"].state == "broken"
    assert facts["tensors"].text.startswith("1 of 2 files are missing in ")
    assert facts["tensors"].text.endswith("gone.pt")
    assert facts["dtypes"].text == "float16, float32"
    assert facts["torch_npu"].text.startswith("1 records")


def test_what_this_torch_lacks_is_named(tmp_path: Path) -> None:
    path = write_dump(
        tmp_path,
        {
            "Torch.of_another_version.0.forward": forward(tensor(2)),
            "Torch.exp.0.forward": forward(tensor(2, dtype="float3")),
        },
    )
    texts = [fact.text for fact in lacking_facts(path)]
    assert texts[0] == "this torch has no such API: Torch.of_another_version"
    assert "torch.float3: unknown to torch " in texts[1]


def test_a_dump_that_cannot_be_read_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dump.json").write_text("{")
    assert main(["doctor", str(tmp_path / "dump.json")]) == 2
    assert f"pytest-msprobe: {tmp_path / 'dump.json'}: " in capsys.readouterr().err


def _on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (
            "raise ImportError('libhccl.so: cannot open shared object file')",
            "libhccl.so: cannot open shared object file",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("raise SystemExit('no driver')", "no driver"),
    ],
)
def test_a_torch_npu_that_cannot_be_used_is_reported_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reported: str
) -> None:
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text(body)
    _on_path(tmp_path, monkeypatch)
    (fact,) = probed("npu")
    assert fact.state == "broken"
    assert reported in fact.text


@pytest.mark.slow
def test_an_extension_that_torch_loads_itself_is_reported_with_the_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half.py").write_text("import ctypes\ndef load():\n    ctypes.CDLL('libascend_of_nobody.so')\n")
    (tmp_path / "half-1.0.dist-info").mkdir()
    (tmp_path / "half-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    (tmp_path / "half-1.0.dist-info" / "entry_points.txt").write_text("[torch.backends]\nhalf = half:load\n")
    _on_path(tmp_path, monkeypatch)
    (fact,) = probed("torch")
    assert fact.state == "broken"
    assert "libascend_of_nobody.so" in fact.text


@pytest.mark.slow
def test_a_library_that_never_returns_costs_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mindspore.py").write_text("import threading\nthreading.Event().wait()\n")
    _on_path(tmp_path, monkeypatch)
    (fact,) = probed("MindSpore", seconds=5)
    assert fact.text == "did not answer within 5 s"


@pytest.mark.nightly
@pytest.mark.slow
def test_the_command_shows_all_of_it_for_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_dump(tmp_path, {"Torch.exp.0.forward": forward(tensor(2))})
    main(["doctor", str(path), "--json"])
    sections = {section["title"]: section["facts"] for section in json.loads(capsys.readouterr().out)}
    assert {fact["name"] for fact in sections["frameworks"]} >= {"torch"}
    assert any(fact["name"] == "cpu" and fact["state"] == "ok" for fact in sections["devices"])
    assert sections["what the dump needs"][1]["text"] == "1 of calls, 0 of modules"


OTHERS = """
import torch

class Others:
    device_count = staticmethod(lambda: 2)
    set_device = synchronize = staticmethod(lambda *index: None)
    get_device_name = staticmethod(lambda index: f"Other {index}")

class Absent:
    device_count = staticmethod(lambda: 0)

def load():
    torch.mtia, torch.xpu, torch.mps = Others, Absent, Absent
"""


@pytest.mark.slow
def test_every_accelerator_that_torch_has_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "others.py").write_text(OTHERS)
    (tmp_path / "sitecustomize.py").write_text(
        "from pytest_msprobe.devices import accelerator, card\nimport others\nothers.load()\n"
        "card.compute_something = lambda device: None\n"
    )
    _on_path(tmp_path, monkeypatch)
    facts = {fact.name: (fact.text.partition(",")[0], fact.state) for fact in probed("accelerators")}
    assert facts["mtia:0"] == ("mtia:0 Other 0", "ok")
    assert facts["mtia:1"] == ("mtia:1 Other 1", "ok")
    assert facts["others"] == ("no card of xpu", "absent")


@pytest.mark.slow
def test_a_device_type_that_torch_lacks_is_reported_with_those_that_it_has() -> None:
    (fact,) = probed("mluu")
    assert fact.state == "broken"
    assert fact.text.startswith("unknown device 'mluu'; known are auto, npu, cuda, cpu")
