from __future__ import annotations

import json
import subprocess
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import ConfigError, PrecisionDebugger, RecordingError, module_dump, module_dump_end, seed_all


@pytest.fixture
def run(forked, tmp_path):
    """Run a script in a process of its own and return how it ended, without an error."""

    def run(script):
        done = forked.run(script, tmp_path)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_steps_go_to_folders_of_their_own_and_numbers_restart(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "d", level="L1")
    for _ in range(2):
        debug.start()
        torch.tanh(torch.ones(2))
        debug.stop()
        torch.sigmoid(torch.ones(2))
        debug.start()
        torch.tanh(torch.ones(2))
        debug.stop()
        debug.step()
    for step in range(2):
        assert list(records(tmp_path / "d", step)) == ["Torch.tanh.0.forward", "Torch.tanh.1.forward"]


def test_only_the_listed_steps_are_recorded(tmp_path, debugger):
    debug = debugger(dump_path=tmp_path / "d", step=["1-2"])
    for _ in range(4):
        debug.start()
        torch.tanh(torch.ones(2))
        debug.stop()
        debug.step()
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["step1", "step2"]


def test_there_is_one_debugger_per_process(tmp_path, debugger):
    first = debugger(dump_path=tmp_path / "a")
    assert debugger(dump_path=tmp_path / "b", level="L0") is first


def test_methods_without_a_debugger_say_so():
    with pytest.raises(RecordingError, match="there is no PrecisionDebugger; call"):
        PrecisionDebugger.start()


def test_a_config_file_is_followed(tmp_path, records, debugger):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "d"), "level": "L1", "statistics": {"list": ["tanh"]}}))
    debug = debugger(str(path))
    debug.start()
    torch.tanh(torch.ones(2))
    torch.sigmoid(torch.ones(2))
    debug.stop()
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]


def test_only_one_module_is_recorded_during_a_module_dump(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "d")
    debug.start()
    linear = nn.Linear(2, 2)
    module_dump(linear, "mine")
    torch.tanh(linear(torch.ones(1, 2)))
    module_dump_end()
    linear(torch.ones(1, 2))
    debug.stop()
    names = [name for name in records(tmp_path / "d") if "init" not in name]
    assert "Module.mine.Linear.forward.0" in names
    assert "Torch.tanh.0.forward" not in names
    assert "Functional.linear.0.forward" in names


def test_custom_functions_are_recorded_until_restored(tmp_path, records, debugger):
    module = types.ModuleType("mykernels")
    exec("def double(x, factor=2):\n    return x * factor", module.__dict__)
    original = module.double
    debug = debugger(dump_path=tmp_path / "d")
    debug.register_custom_api(module, "double")
    debug.start()
    x = torch.ones(2, requires_grad=True)
    original(x, factor=3).sum().backward()
    assert module.double is original
    debug.restore_custom_api(module, "double")
    module.double(x)
    debug.stop()
    found = records(tmp_path / "d")
    assert found["mykernels.double.0.forward"]["input_kwargs"]["factor"]["value"] == 3
    assert found["mykernels.double.0.backward"]["output"][0]["Max"] == 3.0
    assert "mykernels.double.1.forward" not in found
    assert "Tensor.__mul__.0.forward" in found


def test_a_custom_function_registered_during_a_module_dump_is_recorded_after_it(tmp_path, records, debugger):
    module = types.ModuleType("mykernels")
    exec("def double(x):\n    return x * 2", module.__dict__)
    debug = debugger(dump_path=tmp_path / "d")
    debug.start()
    module_dump(nn.Linear(2, 2), "mine")
    debug.register_custom_api(module, "double")
    module.double(torch.ones(2))
    module_dump_end()
    module.double(torch.ones(2))
    debug.restore_custom_api(module, "double")
    module.double(torch.ones(2))
    debug.stop()
    assert [name for name in records(tmp_path / "d") if "double" in name] == ["mykernels.double.0.forward"]


def test_a_missing_custom_function_is_refused(tmp_path, debugger):
    with pytest.raises(ConfigError, match="api is 'nothing'"):
        debugger(dump_path=tmp_path / "d").register_custom_api(torch, "nothing")


def test_a_custom_function_that_cannot_be_replaced_is_refused(tmp_path, debugger):
    with pytest.raises(ConfigError, match="unlike those of 'str'"):
        debugger(dump_path=tmp_path / "d").register_custom_api(str, "upper")


def test_saved_variables_and_their_gradients_are_recorded(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "d", level="debug", task="tensor")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    debug.save({"y": y, "n": 4}, "mine")
    debug.save(y, "mine")
    y.sum().backward()
    debug.step()
    found = records(tmp_path / "d", file="debug.json")
    assert found["mine.0.debug"]["n"] == {"type": "int", "value": 4}
    assert found["mine.0.debug"]["y"]["Max"] == 6.0
    assert found["mine_grad.0.debug"]["y"]["Max"] == 1.0
    assert found["mine_grad.1.debug"]["Max"] == 1.0
    stored = tmp_path / "d/step0/rank/dump_tensor_data" / found["mine.1.debug"]["data_name"]
    assert torch.equal(torch.load(stored, weights_only=True), y.detach())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda debug: debug.save(torch.ones(1), "x"), "save() records nothing at level L1, only at level debug"),
        (lambda debug: debug.monitor(nn.Linear(1, 1)), "monitor() does nothing"),
        (lambda debug: debug.start(token_range=[0, 3]), "token_range is ignored"),
    ],
    ids=["save", "monitor", "token_range"],
)
def test_what_msprobe_takes_and_nothing_follows_is_reported_once(tmp_path, debugger, caplog, call, text):
    debug = debugger(dump_path=tmp_path / "d")
    call(debug)
    call(debug)
    (message,) = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert text in message


def test_a_rank_that_is_given_names_the_folder(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "d")
    for _ in range(2):
        debug.start(rank_id=3)
        torch.tanh(torch.ones(1))
        debug.stop()
        debug.step()
    assert all(records(tmp_path / "d", step, "rank3") for step in range(2))


def test_a_wrong_rank_is_refused(tmp_path, debugger):
    with pytest.raises(ConfigError, match="rank_id is -1; allowed: an integer >= 0"):
        debugger(dump_path=tmp_path / "d").start(rank_id=-1)


def test_apis_can_be_left_out_by_name(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "d", exclude=["t"])
    debug.start()
    torch.tanh(torch.ones(2, 2).t())
    debug.stop()
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]


def test_the_end_of_the_process_says_what_was_recorded(run):
    script = (
        "import torch, msprobe_hooks as m\n"
        "d = m.PrecisionDebugger(dump_path='d')\n"
        "d.start(); torch.tanh(torch.ones(2)); d.stop()\n"
    )
    assert "recorded 1 call in" in run(script).stderr


def test_an_empty_recording_says_which_filter_removed_everything(run):
    script = (
        "import torch, msprobe_hooks as m, json\n"
        "json.dump({'dump_path': 'd', 'statistics': {'list': ['conv']}}, open('config.json', 'w'))\n"
        "d = m.PrecisionDebugger('config.json')\n"
        "d.start(); torch.tanh(torch.ones(2)); d.stop()\n"
    )
    text = run(script).stderr
    assert "nothing was recorded: all records were removed, 1 by list" in text


def test_a_recording_that_never_started_says_so(run):
    script = (
        "import msprobe_hooks as m\nd = m.PrecisionDebugger(dump_path='d', step=[5])\nd.start(); d.stop(); d.step()\n"
    )
    text = run(script).stderr
    assert "nothing was recorded: recording was never started in a configured step and rank" in text
    assert "1 by step" in text


def test_importing_the_package_imports_no_framework():
    script = "import sys, msprobe_hooks; assert 'torch' not in sys.modules and 'mindspore' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


def test_seeding_makes_runs_equal_and_silences_dropout(run):
    script = (
        "import torch, random, numpy as np, torch.nn.functional as F\n"
        "from torch.nn.functional import dropout\n"
        "from msprobe_hooks import seed_all\n"
        "draws = []\n"
        "for _ in range(2):\n"
        "    seed_all(7)\n"
        "    draws.append((torch.rand(1).item(), random.random(), np.random.rand()))\n"
        "assert draws[0] == draws[1]\n"
        "x = torch.ones(50)\n"
        "assert torch.equal(dropout(x, 0.5), x) and torch.equal(torch.nn.Dropout(0.9)(x), x)\n"
    )
    run(script)


@pytest.mark.parametrize(("key", "value"), [("seed", -1), ("seed", True), ("mode", 1), ("rm_dropout", None)])
def test_seeding_refuses_wrong_arguments(key, value):
    before = F.dropout.__code__
    with pytest.raises(ConfigError, match=f"{key} is {value}"):
        seed_all(**{key: value})
    assert F.dropout.__code__ is before
