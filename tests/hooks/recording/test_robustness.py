from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from msprobe_hooks import RecordingError, record
from msprobe_hooks.dump.reader import read_dump


def test_a_keyboard_interrupt_leaves_a_complete_dump(tmp_path, records):
    def interrupted():
        with record(tmp_path / "d"):
            torch.tanh(torch.ones(2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]
    assert torch._C._len_torch_function_stack() == 0


def test_an_interrupted_call_says_so_in_its_record(tmp_path, records):
    class Interrupting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.tanh:
                raise KeyboardInterrupt
            return super().__torch_function__(func, types, args, kwargs or {})

    with pytest.raises(KeyboardInterrupt), record(tmp_path / "d"):
        torch.tanh(torch.ones(2).as_subclass(Interrupting))
    assert records(tmp_path / "d")["Torch.tanh.0.forward"]["exception"].startswith("KeyboardInterrupt")


def test_a_forked_child_writes_nothing(forked, tmp_path):
    script = (
        "import os, torch\n"
        "from msprobe_hooks import record\n"
        f"with record({str(tmp_path / 'd')!r}) as session:\n"
        "    torch.tanh(torch.ones(2))\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        torch.sigmoid(torch.ones(2))\n"
        "        session.close()\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    torch.relu(torch.ones(2))\n"
    )
    assert forked.run(script, tmp_path).returncode == 0
    dump = read_dump(tmp_path / "d/step0/rank/dump.json")
    assert list(dump.records) == ["Torch.tanh.0.forward", "Torch.relu.0.forward"]


def test_loader_workers_are_not_recorded(forked, tmp_path):
    script = (
        "import torch\n"
        "from msprobe_hooks import record\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return torch.sigmoid(torch.ones(2) * i)\n"
        f"with record({str(tmp_path / 'd')!r}):\n"
        "    for batch in torch.utils.data.DataLoader(Data(), num_workers=2): torch.tanh(batch)\n"
    )
    assert forked.run(script, tmp_path).returncode == 0
    names = list(read_dump(tmp_path / "d/step0/rank/dump.json").records)
    assert [name for name in names if "tanh" in name] == [f"Torch.tanh.{i}.forward" for i in range(4)]
    assert not [name for name in names if "sigmoid" in name]


def test_calls_of_many_threads_have_each_its_number(tmp_path, records):
    def work():
        x = torch.ones(4, requires_grad=True)
        for _ in range(50):
            torch.tanh(x).sum().backward()

    with record(tmp_path / "d") as session:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = records(tmp_path / "d")
    assert {f"Torch.tanh.{number}.{way}" for number in range(200) for way in ("forward", "backward")} <= set(found)
    assert session.summary.errors == {}


def test_a_profiler_for_threads_is_put_back(tmp_path):
    def profiler(*_):
        return None

    threading.setprofile(profiler)
    try:
        with record(tmp_path / "d"):
            pass
        assert threading.getprofile() is profiler
    finally:
        threading.setprofile(None)


def test_tensor_subclasses_keep_their_overrides(tmp_path, records):
    class Doubling(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs or {})
            return result * 2 if func is torch.tanh else result

    x = torch.ones(2).as_subclass(Doubling)
    want = torch.tanh(x)
    with record(tmp_path / "d") as session:
        assert torch.equal(torch.tanh(x), want)
    assert session.summary.errors == {}
    assert "Torch.tanh.0.forward" in records(tmp_path / "d")


def test_a_value_that_cannot_be_observed_does_not_stop_the_call(tmp_path):
    class Hostile(dict):
        def items(self):
            raise RuntimeError("go away")

    with record(tmp_path / "d") as session:
        assert torch.ones_like(torch.zeros(2), dtype=torch.float32).sum() == 2
        session.recorder.measured._measure = None
        torch.tanh(torch.ones(2))
    assert {text.partition(":")[0] for text in session.summary.errors} == {"Torch.tanh"}


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_compiled_submodule_runs_and_what_surrounds_it_is_recorded(tmp_path, records):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), torch.compile(nn.Linear(4, 4), backend="eager"), nn.Tanh())
    x = torch.randn(2, 4)
    want = model(x)
    with record(tmp_path / "d", "mix", model=model) as session:
        got = model(x)
        got.sum().backward()
    assert torch.equal(got, want)
    assert session.summary.errors == {}
    found = records(tmp_path / "d")
    assert "Torch.tanh.0.forward" in found
    assert "Functional.linear.0.forward" in found


@pytest.mark.slow
def test_what_a_compiler_runs_around_its_code_is_no_call_of_the_program(tmp_path, records):
    torch._dynamo.reset()
    compiled = torch.compile(nn.Linear(4, 4), backend="aot_eager")
    with record(tmp_path / "d"):
        # Its gradient arrives expanded, and is copied into the layout that the backward pass was compiled for.
        compiled(torch.randn(2, 4) * 2).sum().backward()
    assert {name.split(".")[1] for name in records(tmp_path / "d")} == {"__mul__", "sum", "ones_like"}


def test_a_function_compiled_while_recording_gives_the_same_result(tmp_path):
    torch._dynamo.reset()

    def f(x):
        return torch.tanh(x) * 2 + 1

    x = torch.randn(4)
    with record(tmp_path / "d") as session:
        assert torch.equal(torch.compile(f, backend="eager")(x), torch.tanh(x) * 2 + 1)
    assert session.summary.errors == {}


def test_huge_tensors_are_measured_without_copies(tmp_path, records):
    x = torch.zeros(1).expand(1 << 25)
    with record(tmp_path / "d"):
        torch.Tensor.unsqueeze(x, 0)
    assert records(tmp_path / "d")["Tensor.unsqueeze.0.forward"]["input_args"][0]["Max"] == 0.0


def test_the_process_exits_cleanly_while_recording(tmp_path):
    script = (
        "import torch\n"
        "from msprobe_hooks import PrecisionDebugger\n"
        f"d = PrecisionDebugger(dump_path={os.fspath(tmp_path / 'd')!r})\n"
        "d.start()\n"
        "torch.tanh(torch.ones(2))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert list(read_dump(tmp_path / "d/step0/rank/dump.json").records) == ["Torch.tanh.0.forward"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_tracing_sees_no_measurements(tmp_path):
    def f(x):
        return torch.tanh(x) + 1

    def operations():
        return [line.partition("#")[0] for line in str(torch.jit.trace(f, torch.ones(2)).graph).splitlines()]

    plain = operations()
    with record(tmp_path / "d"):
        assert operations() == plain


class UnspeakableError(Exception):
    """An error that cannot be put into words."""

    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("where", ["argument", "exception"])
def test_text_that_is_no_unicode_is_escaped_as_msprobe_writes_it(tmp_path, records, where):
    with record(tmp_path / "d") as session:
        torch.tanh(torch.ones(2))
        with pytest.raises(RuntimeError):
            torch.einsum("i\ud800,i->" if where == "argument" else os.fsdecode(b"\xff"), torch.ones(2), torch.ones(2))
        torch.tanh(torch.full((2,), float("inf")))
    found = records(tmp_path / "d")
    assert found["Torch.einsum.0.forward"]["input_args"][0]["value"] in ("i\ud800,i->", "\udcff")
    assert session.summary.calls == len(found) == 4
    assert session.summary.errors == {}


def test_a_record_that_json_cannot_hold_costs_itself(tmp_path, records):
    nested = {}
    for _ in range(20_000):
        nested = {"a": nested}
    with record(tmp_path / "d") as session:
        torch.tanh(torch.ones(2))
        session.recorder.emit("Library.double.0.forward", nested, None, "calls")
        torch.tanh(torch.ones(2))
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward", "Torch.tanh.1.forward"]
    assert session.summary.calls == 2
    assert "not recorded, 1 time: Library.double.0.forward: RecursionError" in str(session.summary)


def test_an_error_that_cannot_be_put_into_words_is_the_one_that_is_raised(tmp_path, records):
    class Raising(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.tanh:
                raise UnspeakableError
            return super().__torch_function__(func, types, args, kwargs or {})

    with record(tmp_path / "d"), pytest.raises(UnspeakableError):
        torch.tanh(torch.ones(2).as_subclass(Raising))
    assert records(tmp_path / "d")["Torch.tanh.0.forward"]["exception"] == "UnspeakableError"


def test_a_device_that_fails_when_its_numbers_are_fetched_does_not_end_the_training(tmp_path, records):
    def fail():
        raise RuntimeError("device lost")

    with record(tmp_path / "d") as session:
        torch.tanh(torch.ones(2))
        session.recorder.fetch = fail
        session.stop()
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]
    assert "statistics on a device: RuntimeError: device lost" in str(session.summary)


def test_a_name_that_no_file_has_is_spelled_out(tmp_path, records):
    with record(tmp_path / "d", "debug", task="tensor") as session:
        session.save(torch.ones(2), "loss/train\0")
        session.save({"a/b": torch.ones(2)}, "parts")
    folder = tmp_path / "d/step0/rank/dump_tensor_data"
    assert {path.name for path in folder.iterdir()} == {"loss%2Ftrain%00.0.debug.pt", "parts.0.debug.a%2Fb.pt"}
    assert (
        records(tmp_path / "d", file="debug.json")["loss/train\0.0.debug"]["data_name"] == "loss%2Ftrain%00.0.debug.pt"
    )


def test_a_recording_that_could_not_be_written_says_so_and_does_not_start_again(tmp_path):
    folder = tmp_path / "d/step0/rank/dump_tensor_data"

    def recorded():
        with record(tmp_path / "d", task="tensor") as session:
            torch.tanh(torch.ones(2))
            session.stop()
            folder.rename(tmp_path / "gone")
            session.start()
            torch.tanh(torch.ones(2))
            session.stop()
            session.start()
            summaries.append(session.summary)
            assert not session.recorder.is_recording

    summaries = []
    with pytest.raises(RecordingError, match="a tensor cannot be written"):
        recorded()
    assert str(summaries[0]).startswith(f"recording stopped: {folder}: a tensor cannot be written")
