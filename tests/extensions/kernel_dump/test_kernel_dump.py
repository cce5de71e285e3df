from __future__ import annotations

import importlib.util
import sys
import types

import pytest
import torch

from msprobe_hooks import ConfigError, PrecisionDebugger, record
from msprobe_hooks.errors import RecordingError
from msprobe_hooks.extensions.kernel_dump.torch_recorder import write_kernel_config

WANTED = "Torch.tanh.0.forward"


def test_the_file_for_the_library_is_what_msprobe_writes(tmp_path):
    path = write_kernel_config(tmp_path, 3)
    assert path == tmp_path / "kernel_config_3.json"
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text() == (
        "{\n"
        '    "dump": {\n'
        '        "dump_list": [],\n'
        f'        "dump_path": "{tmp_path}",\n'
        '        "dump_mode": "all",\n'
        '        "dump_op_switch": "on"\n'
        "    }\n"
        "}"
    )
    assert write_kernel_config(tmp_path, None).name == "kernel_config.json"


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(RecordingError, match=r"none/kernel_config_0\.json: cannot be written: No such file"):
        write_kernel_config(tmp_path / "none", 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"list is \[\]; allowed: the full name of one record"),
        ({"list": ["tanh"]}, r"list is \['tanh'\]; allowed: the full name"),
        ({"list": [WANTED, "Torch.exp.0.forward"]}, "allowed: the full name of one record"),
        (
            {"list": [WANTED], "scope": [WANTED, WANTED]},
            "scope is .*; not supported at level L2; name the call in list",
        ),
        ({"list": [WANTED], "task": "overflow_check"}, "level is"),
    ],
)
def test_settings_that_name_no_single_call_are_refused(tmp_path, options, said):
    with pytest.raises(ConfigError, match=said), record(tmp_path, level="L2", **options):
        pass


@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is not None, reason="torch_npu is installed here")
def test_without_torch_npu_a_debugger_says_what_is_missing(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        f'{{"task": "tensor", "level": "L2", "dump_path": "{tmp_path}/d", "tensor": {{"list": ["{WANTED}"]}}}}'
    )
    with pytest.raises(ConfigError, match="L2 needs torch_npu: No module named 'torch_npu'"):
        PrecisionDebugger(config_path=config)
    assert PrecisionDebugger._instance is None


def test_a_torch_npu_that_cannot_be_loaded_has_its_missing_library_named(tmp_path, monkeypatch):
    message = "libhccl.so: cannot open shared object file: No such file or directory"
    (tmp_path / "torch_npu.py").write_text(f"raise ImportError({message!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"libhccl\.so: cannot open"), record(tmp_path, level="L2", list=[WANTED]):
        pass


def test_a_torch_npu_that_cannot_dump_has_the_missing_function_named(tmp_path, monkeypatch):
    old = types.ModuleType("torch_npu")
    old.npu = types.SimpleNamespace(init_dump=lambda: None)
    monkeypatch.setitem(sys.modules, "torch_npu", old)
    with pytest.raises(ConfigError, match=r"no torch_npu\.npu\.set_dump"), record(tmp_path, level="L2", list=[WANTED]):
        pass


@pytest.mark.parametrize("part", ["init_dump", "set_dump", "finalize_dump"])
@pytest.mark.parametrize("wanted", [WANTED, "Torch.tanh.0.backward"])
def test_a_library_that_fails_is_reported_and_the_call_runs(tmp_path, monkeypatch, part, wanted):
    def broken(*_):
        raise RuntimeError("this part is broken")

    def works(*_):
        return None

    library = types.ModuleType("torch_npu")
    parts = dict.fromkeys(("synchronize", "init_dump", "set_dump", "finalize_dump"), works)
    library.npu = types.SimpleNamespace(**parts | {part: broken})
    monkeypatch.setitem(sys.modules, "torch_npu", library)

    def computed():
        x = torch.ones(2, requires_grad=True)
        y = torch.tanh(x)
        y.sum().backward()
        return torch.stack([y.detach(), x.grad])

    with record(tmp_path / "d", level="L2", list=[wanted]) as session:
        recorded = computed()
    assert torch.equal(recorded, computed())
    assert any("this part is broken" in problem for problem in session.summary.errors)
